"""Mechanisms of a trusted curator: strategies for one axis, made from public facts only, and their estimates."""
