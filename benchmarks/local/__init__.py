"""People report for themselves: figures, peers of the papers, and benchmarks/results/local.md."""
