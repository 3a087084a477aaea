"""A server among clients as they are: hostile roles, guesses, reloads, and its end. `make bench TOPIC=production`."""
