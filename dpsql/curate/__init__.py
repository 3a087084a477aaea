"""What a curator does around a publish: a first catalog, a forecast before budget is spent, an audit afterwards."""
