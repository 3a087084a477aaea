"""SQL text in, blocks and a regenerated outer statement out. The only package here that imports sqlglot.

parse         guarded text -> one checked tree, how trees are read and changed, and errors that point into the text
settings      SET for a session, which never reach the parser
spellings     what other systems write in their own way -> DuckDB's words; ROLLUP, CUBE, GROUPING SETS -> a UNION ALL
dialects      what is spelled alike and means something else
per_person    rows grouped by the person -> columns of the people's table
from_clause   FROM clauses and names -> the star's tables and columns
semijoin      IN and EXISTS over a table's key -> joins and counts; joins -> foreign-key paths
binding       expressions and conditions -> placeholder text
moments       STDDEV, CORR .. -> averages of squares and products
aggregates    COUNT, SUM, AVG .. and arithmetic over them -> terms and forms
select        one SELECT over rows -> one block
finer_groups  rows beside answers, and keys over several axes -> a finer block, joined and added up
rewrite       the statement with its blocks replaced by relations of their groups
statement     what is handed to the planner, the state while rewriting, and a dialect's quotients, casts and NULLs
added         groups that the catalog adds, left out where groups are counted
follow        derivatives of expressions by the noisy cells below them (`dependence`: their arithmetic)
carry         the statement that carries cells; `selection`: the clauses that choose rows by noise
"""
