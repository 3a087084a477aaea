"""Web pages over open releases: `explore` serves them; `site`, `report` and `certificate` write them to files."""
