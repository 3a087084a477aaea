"""Streams: strategies that answer while batches keep arriving, and the choice between them."""
