"""The memory of a running training: how much, and what keeps it."""
