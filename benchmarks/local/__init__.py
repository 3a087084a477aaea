"""People report for themselves: figures, peers of the papers, and docs/accuracy/local.md."""
