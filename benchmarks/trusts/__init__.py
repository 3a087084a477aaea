"""Releases of two trusts, asked as one, and releases made of both."""
