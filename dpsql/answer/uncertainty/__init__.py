"""Standard errors and intervals of values over noisy cells.

**Privacy**: post-processing of a release.
"""
