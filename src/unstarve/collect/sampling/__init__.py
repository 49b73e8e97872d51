"""Sampling of stacks: which functions take the time."""
