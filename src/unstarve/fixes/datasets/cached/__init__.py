"""`CachedDataset`: a dataset in memory once, for all workers and ranks of a machine."""
