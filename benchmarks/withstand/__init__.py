"""What withstands: neighbours, hostile files, faults; each module prints its figures."""
