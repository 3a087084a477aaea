"""The `dpsql shell`: SQL and backslash commands over open releases.

split       a stream of lines -> statements and commands
state       what the user has set: format, error display, timing, output file
commands    the backslash commands
evaluate    one statement or command -> text on the output
complete    completion of tables, columns, category values, functions, commands
repl        the loop on a terminal; `run_text` for -c, -f and pipes
"""

from dpsql.shell.evaluate import Stop, evaluate
from dpsql.shell.repl import interact, run_text
from dpsql.shell.state import State

__all__ = ["State", "Stop", "evaluate", "interact", "run_text"]
