"""Ways to run a loader's arguments. One module each, with the same three functions:

`why_not(loader)`  why this engine cannot give what torch's loader would, in one sentence; None where it can
`why(loader)`      why it is the right one here, in one sentence
`iterate(loader)`  a fresh iterator over one epoch

A module whose batches share memory with the dataset says `SHARES_MEMORY = True`.
"""
