"""Answers for the caller: `result` holds rows and intervals; `render` and `margins` write
them as text, `export` writes tables of a release.

**Privacy**: post-processing of a release.
"""
