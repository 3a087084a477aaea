"""What docs/privacy.md promises, measured on whole publishes."""
