"""A dataset held in memory once, for all workers and ranks of a machine.

`dataset`   `CachedDataset`, what users see
`source`    what may be cached: tensors and arrays where they lie, or a dataset whose samples are copied
`layout`    what the samples of a dataset have in common: `tree` their structure, `leaves` their values
`store`     the samples in one `region` of shared memory or of a file; `blobs` for what fits no row
`filling`   samples from the dataset into the store, by one process or by several at once
`homes`     where a store lives: memory within the `budget`, or a file in the cache folder (`disk`)
`ranks`     how the processes of one training find each other's store; `key` says whose are the same
`frozen`    warns of random transforms whose result would be the same forever
"""
