"""Figures of answers: right, or marked as not."""
