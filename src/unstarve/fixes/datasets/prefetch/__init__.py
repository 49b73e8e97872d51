"""A dataset whose samples are fetched by background threads before they are asked for.

`dataset.py`      what a user wraps a dataset in
`stream.py`       the same for a source that is read in order
`fetcher.py`      samples, with threads or without, and some ahead
`order.py`        what comes next: the sampler pulled a little ahead, or a guess from a steady stride
`torch_order.py`  the sampler of the torch loader that is asking
`iteration.py`    one iteration over the dataset: what it has under way and drops when it ends
`background.py`   what a process has going: threads, iterations
`tasks.py`        one fetch and its result
`pool.py`         threads that run fetches
`event_loop.py`   the same for fetches that are coroutines
`reader.py`       a thread that reads an iterable
`judge.py`        whether threads help here, by measurement
"""
