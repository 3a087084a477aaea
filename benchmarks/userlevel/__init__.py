"""Customers who own many rows: figures."""
