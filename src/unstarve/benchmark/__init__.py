"""`unstarve bench`: the fixes against torch's own loader, side by side in one run.

`plan.py`     what to measure, at which sizes
`entries.py`  one way to load, and one part: the ways that load the same data
`parts/`      the parts, by what they are about
`timing.py`   seconds per batch, round by round, all ways taking turns
`memory.py`   memory besides the data, each way in a process of its own
`files.py`    what parts read from storage, and how to make the system forget it
`run.py`      a plan → what was measured
"""
