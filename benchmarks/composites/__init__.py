"""Intervals of what outer statements make of noisy groups."""
