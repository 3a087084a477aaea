"""The side that sees raw rows and draws noise: from a catalog to a release file, once."""
