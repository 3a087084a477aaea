"""Releases over time: noise drawn ahead against the method's table."""
