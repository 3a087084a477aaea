"""Facts about people: twelve questions on three stars, and what making them costs."""
