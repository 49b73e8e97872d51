"""Wrap a loader: log the real run, replay the ideal, and draw one against the other."""
