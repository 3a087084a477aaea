"""What BI tools send: statements of their templates over a star of bookings, with PostgreSQL as the oracle."""
