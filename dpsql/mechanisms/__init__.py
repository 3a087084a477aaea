"""Mechanisms: numpy in, numpy out. What is measured and how estimates are made, without drawing any noise."""
