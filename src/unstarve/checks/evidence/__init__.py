"""Checks of a recorded run. Needs no torch."""
