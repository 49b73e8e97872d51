"""Ways to run a loader's arguments: the engines, listed in `choose_engine`.

`choose_engine`     picks the engine for a loader and explains the choice
`memory_engines`    views, gather: samples are rows of tensors in memory (`row_table`, `gathered_batches`)
`thread_engine`     threads: the dataset reads without the GIL (`thread_readers`), a batch per thread
                    (`thread_iterator`, `read_ahead`) or all at one (`drawn_iterator`, `drawn_batches`)
`process_engines`   ring, stock: worker processes, or torch's own way
`index_order`       the indices of an epoch, drawn exactly as torch's samplers draw them
`torch_epoch`       what torch does at the start of an epoch, and what its iterators expose
"""
