"""`python -m dpsql.cli` is the console script."""

from dpsql.cli import main

main()
