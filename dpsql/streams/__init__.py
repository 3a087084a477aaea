"""Releases over time: one file a batch, charged once for the whole horizon, answered as one release."""
