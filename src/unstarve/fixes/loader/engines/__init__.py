"""Ways to run a loader's arguments. One module each, with the same two functions:

`plan(loader)`     what gives a fresh iterator over an epoch that begins now; or, in one sentence, why this
                   engine cannot give what torch's loader would
`why(loader)`      why it is the right one here, in one sentence

A module whose batches share memory with the dataset says `SHARES_MEMORY = True`.
"""
