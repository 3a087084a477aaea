"""Releases over time: figures, seed 004's comparison, and docs/accuracy/streams.md."""
