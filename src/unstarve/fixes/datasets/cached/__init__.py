"""A dataset held in memory once, for all workers and ranks of a machine.

`dataset`    `CachedDataset`, what users see; it holds `Columns` or `Copies`
`source`     `Columns`: tensors and arrays, used where they lie
`copies`     `Copies`: samples of a dataset in a store, filled at once or as they are asked for
`probing`    a first look at a dataset; `frozen` warns of randomness that a cache would make last
`layout`     what samples have in common: `tree` their structure, `leaves` their values
`rows`       values that lie in rows, and `batches` gathered from them; `blobs` for all others
`store`      samples in a `region` of shared memory or of a file, under `locks`
`filling`    samples from the dataset into the store, by several processes at once; `progress` tells how far
`homes`      where a store lives: in memory within the `budget`, or in the cache folder (`disk`)
`ranks`      how the processes of one training come to share a store; `key` says whose are the same
`patience`   how long to wait for another process that may have stopped
`pinning`    page-locked memory
"""
