"""SQL text in, blocks and a regenerated outer statement out. The only package here that imports sqlglot.

parse      guarded text -> one checked tree, and errors that point into the text
settings   SET and PRAGMA for a session, which never reach the parser
rows       FROM clauses and names -> the star's tables and columns
binding    joins -> foreign-key paths; expressions and conditions -> placeholder text
values     COUNT, SUM, AVG .. and arithmetic over them -> terms and forms
select     one SELECT over rows -> one block
rewrite    the statement with its blocks replaced by relations of their groups
statement  what is handed to the planner, and the state while rewriting
finite     NaN and infinity become NULL where they would arise
"""
