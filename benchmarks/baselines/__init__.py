"""Mechanisms of the literature behind one signature, for comparison only."""
