"""SQL text in, blocks and a regenerated outer statement out. The only package here that imports sqlglot.

guard       limits on the text, before anything parses it
parse       one statement, any dialect
whitelist   node types and functions that may go on; everything else is refused
names       FROM clauses and columns -> the star's tables and columns
joins       join conditions -> foreign-key paths
conditions  WHERE and FILTER -> plain conditions
aggregates  COUNT, SUM, AVG .. -> terms and forms
select      one SELECT -> one block
rewrite     the statement with its blocks replaced by relations of their groups
finite      NaN and infinity become NULL where they would arise
settings    SET and PRAGMA for a session, which never reach the parser
refuse      typed errors that point into the text
"""
