"""Checks of a loader as an object, before it runs."""
