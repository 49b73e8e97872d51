"""Exact resume: `state_dict` and `load_state_dict` of `unstarve.DataLoader`.

`loader_state`      what a state holds, how it is checked, and how it is loaded
`epoch_start`       begins an epoch: a new one, or the rest of the one that a loaded state describes
`progress`          how far an epoch is; every engine's iterator counts into it
`index_replay`      which indices the rest of an epoch consists of
`random_state`      generators of the process, of the loader and of its samplers
`worker_notes`      what each worker process tells about its random streams and its dataset
`protocol`          objects that save their state themselves, as torchdata's StatefulDataLoader expects
"""
