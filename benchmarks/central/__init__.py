"""Central releases: expected errors, simulated ones, and benchmarks/results/central.md."""
