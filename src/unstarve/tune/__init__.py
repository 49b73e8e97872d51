"""A loader that finds its own number of workers and prefetch depth while training goes on.

How a batch comes about:

    the user's sampler ─► stream ─► crew (workers under one setting) ─► iteration ─► training
                                      ▲                                    │ when asked, when got
                                      └──── settings ◄── tuner ◄───────────┘

`stream`     an epoch's indices in the sampler's order: every crew takes its own from there
`crew`       torch's iterators, steered: held back, deepened, and asked what they still owe
`images`   threads of ours in the place of workers, for image folders
`seen`       a loader as a crew sees it
`iteration`  one epoch: hands out batches in order while one crew takes over from another
`window`     a stretch of steps → how fast training went, and how sure that is
`machine`    cores, and the CPU time that loading takes
`room`       what memory a setting takes, and what there is
`aim`        from a stretch of steps → how many workers it would take
`search`     which settings are tried, in which order, and what is concluded: no clock, no process
`race`       the last few settings in turns, until it is clear which is fastest
`watch`      notices after tuning that conditions have changed
`round`      one search along real training
`tuner`      one search after the other, for one loader
`fitness`    what of a loader may be tuned at all
`report`     a window as a trial
`explain`    what was found, in words
`loader`     `unstarve.autotune`
"""
