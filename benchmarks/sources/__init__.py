"""What a source calls one value, one table: figures of the promises that end before the noise."""
