"""Interfaces for language models: the `mcp` server, and `claims`, which checks quoted numbers against answers."""
