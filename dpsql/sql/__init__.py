"""What analysts' statements and a curator's expressions share: limits on text, lists of pure functions, row-local SQL.

This and `answer.sql` are the places that import the parser, which changes often.
"""
