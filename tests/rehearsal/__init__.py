"""Made-up stars published many times, and every printed interval compared with plain DuckDB over the same rows."""
