"""`python -m dpsql.doors.cli` is the console script."""

from dpsql.doors.cli import main

main()
