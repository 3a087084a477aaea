"""dpsql: private analytics over star schemas, with SQL and error bars."""
