"""Worker processes hand batches over in shared memory that is used again: no new pages, no descriptors.

How a batch travels:

    worker                                              training process
    collate ─► slot (shared memory, mapped by both) ─►  tensors on the slot's memory
       ▲         │ tree pickled without its bytes         │ last reference gone
       │         └─ pipe: a few bytes naming the slot ─►  │
       └──────────────── slot is free again ◄─────────────┘

`memory`     anonymous shared memory, mapped without a file descriptor kept
`bell`       how who waits for a message learns that it is there
`collating`  `default_collate`, straight into a slot
`forms`      samples → slot without a batch in between, where they are like those before
`packing`    a batch ↔ a pickle without the bytes of its arrays, and where those bytes lie
`repeating`  batches that look like an earlier one: not pickled again
`slots`      the worker's side: which slot is free, when one is made or replaced
`outbox`     the worker's side: a batch → a slot → a message
`inbox`      the training process's side: a message → a batch, and the slot freed in the end
`queue`      a multiprocessing queue that writes small messages at once, without its thread
`pinned`     slots as pinned memory: they are free when the GPU has read them, too
`worker`     what a worker process runs around torch's own loop
`iterator`   torch's own iterator with the above in place
"""
