"""SQL text in, blocks and a regenerated outer statement out. The only package here that imports sqlglot.

parse      guarded text -> one checked tree, and errors that point into the text
settings   SET for a session, which never reach the parser
normal     what other systems write in their own way -> the words of the one that answers
sets       ROLLUP, CUBE and GROUPING SETS -> a UNION ALL
members    who has a row: IN and EXISTS over the people's table -> COUNT(DISTINCT ..)
rows       FROM clauses and names -> the star's tables and columns
paths      joins -> foreign-key paths
semijoin   IN and EXISTS over a table's key -> joins
binding    expressions and conditions -> placeholder text
values     COUNT, SUM, AVG .. and arithmetic over them -> terms and forms
select     one SELECT over rows -> one block
regroup    rows beside answers, and keys over several axes -> a finer block, joined and added up
rewrite    the statement with its blocks replaced by relations of their groups
statement  what is handed to the planner, and the state while rewriting
finite     NaN and infinity become NULL where they would arise
"""
