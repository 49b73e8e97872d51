"""Checks of source that nobody has run. Needs no torch."""
