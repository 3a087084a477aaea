"""Accuracy and speed measured against the literature; not in the wheel."""

import os

# The same rows are published in throw-away ledgers again and again; nothing of it is remembered on this computer.
os.environ.setdefault("DPSQL_STATE", os.devnull)
