"""Worker processes hand batches over in reused shared memory: no new pages, no file descriptors.

How a batch travels:

    worker                                              training process
    collate ─► slot (shared memory, mapped by both) ─►  tensors on the slot's memory
       ▲         │ tree pickled without its bytes         │ last reference gone
       │         └─ pipe: a few bytes naming the slot ─►  │
       └──────────────── slot is free again ◄─────────────┘

`ring_iterator`  torch's own iterator and worker loop, with the parts below put in
`slot_collate`   samples → slot: `default_collate` that stacks in the slot itself
`batch_pickle`   a batch ↔ a pickle without the bytes of its arrays; repeated batches skip the pickling
`slots`          who owns a slot, when one is created, replaced and freed; both sides
`slot_messages`  `Outbox`: batch → slot → message, in a worker; `Inbox`: message → batch, in training
`ring_queue`     a multiprocessing queue that writes small messages at once, without its thread
`gpu_fence`      slots as pinned memory: one is free only when the GPU has read it, too
"""
