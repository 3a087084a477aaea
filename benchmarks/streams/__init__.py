"""Releases over time: figures, seed 004's comparison, and benchmarks/results/streams.md."""
