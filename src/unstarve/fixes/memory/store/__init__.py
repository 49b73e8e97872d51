"""The samples of a dataset in one region that many processes read and fill.

stored_copies    `Copies`: samples of a dataset in a store, filled at once or as they are asked for
dataset_probe    a first look at a dataset: layout, size, randomness
sample_layout    the layout that samples share; values in rows, and all others pickled
sample_store     the region's format, and reading and writing samples in it
cache_placement  where a store lives: in memory within the budget, or in a file
cache_files      the files of the cache folder
cache_key        the key that identifies a dataset
rank_sharing     how ranks find the same region
process_locks    locks between processes, and how long to wait for one that may have stopped
"""
