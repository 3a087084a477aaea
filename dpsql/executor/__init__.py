"""From a planned statement to values and their errors: reads releases only, draws no noise, opens no raw row.

engine       the whole way from SQL text to a Result, its cache, and errors beforehand: read this first
relation     a block -> the view that answers -> the relation of its groups
recombine    leaf coverage -> tree nodes -> one DuckDB statement -> terms
margin_cache sums of a shape of statement that comes again
outer        the outer statement over the relations of its blocks
readings     both readings of numbers that depend on which groups are empty
run          one DuckDB statement, and stopping it
explain      a plan and its decomposition in words
"""
