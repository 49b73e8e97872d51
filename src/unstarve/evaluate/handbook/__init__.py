"""Quick answers about a loader or a dataset, measured on the spot."""
