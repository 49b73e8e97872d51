"""Loaders that find their own number of workers and prefetch depth during training.

How a batch is made:

    the user's sampler ─► index stream ─► crew (workers under one setting) ─► tuned epoch ─► training
                                           ▲                                     │ when asked, when received
                                           └──── settings ◄── tuner ◄────────────┘

`autotune`      the public loaders
`tuner`         tunes one loader: one search after another, with a watch for changes in between
`tuned_epoch`   one epoch: delivers every batch once, in order, while one crew takes over from another
`crews`         torch's iterators, and threads that read images, made to pause, resume and go deeper
`index_stream`  what crews share: the epoch's indices in the sampler's order, seeds, a view of the loader
`live_search`   one search during real training
`search`        which setting to try next, and what to conclude: no clock, no process
`bounds`        which settings a search may ask for
`race`          the last few settings in turns, until it is clear which one is fastest
`step_window`   measures whole bursts: time per step, its uncertainty, CPU time
`window_reading` what a window says: whether training waits, what limits it
`window_forecast` from a window: how fast other settings would be
`memory_fit`    whether a setting fits into memory
`tunability`    what may be tuned of a loader
`explain`       results in words
"""
