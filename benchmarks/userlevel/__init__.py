"""Customers who own many rows: figures, and docs/accuracy/userlevel.md."""
