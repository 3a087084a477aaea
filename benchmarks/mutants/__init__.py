"""Which small defects of the noise, the budgets and the ledger no test notices: `python -m benchmarks.mutants.run`."""
