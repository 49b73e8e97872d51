"""A dataset whose samples are fetched by background threads before they are asked for.

prefetch_dataset    `AsyncPrefetchDataset`, what a user wraps a dataset in
sample_fetcher      fetches samples, with threads or without, and some ahead
prefetch_iteration  one iteration: what comes next, and what is being fetched
sampler_order       which indices come next: from the sampler, or guessed
fetch_threads       threads and event loops that run fetches
thread_judge        whether threads help, by measurement
"""
