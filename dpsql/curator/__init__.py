"""Tools of a curator around a publish: first catalog, forecast before budget is spent, audit afterwards."""
