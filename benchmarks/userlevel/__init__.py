"""Customers who own many rows: figures, and benchmarks/results/userlevel.md."""
