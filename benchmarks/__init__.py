"""Accuracy and speed measured against the literature; not in the wheel."""
