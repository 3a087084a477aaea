"""Mechanisms of a trusted curator: strategies from public facts only, and their estimates."""
