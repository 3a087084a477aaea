"""Central releases: expected errors, simulated ones, and docs/accuracy/central.md."""
