"""People who own many rows: `max_ids: auto`, bounds and scales chosen without looking too closely."""
