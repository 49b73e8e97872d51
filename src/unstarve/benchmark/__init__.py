"""`unstarve bench`: the fixes against torch's own loader, side by side in one run.

`bench_plan`         what to measure: sizes, entries (ways to load), parts (entries for the same data)
`memory_parts`       the parts, by where their data comes from; also `file_parts`, `image_parts` and
                     `worker_parts`
`run_benchmark`      plan → results: all entries of a part take turns, round by round
`measure_ways`       time and CPU time per batch; memory besides the data, in a separate process
`bench_data`         files and images that parts read, and how to drop them from the page cache
`disk_limit`         the same reads without a loader: the limit that storage sets
`optional_packages`  packages of other projects, if installed
"""
