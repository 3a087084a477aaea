"""`python -m dpsql` is the console script."""

from dpsql.doors.cli import main

main()
