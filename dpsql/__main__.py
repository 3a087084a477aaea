"""`python -m dpsql` is the console script."""

from dpsql.interfaces.cli import main

main()
