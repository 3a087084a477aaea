"""Keys that nobody listed: how many are shown, how well they are measured, what it costs."""
