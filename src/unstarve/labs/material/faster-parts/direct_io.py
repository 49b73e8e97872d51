"""Direct reads against reads through the page cache, of 48 files of 1 MB each, on the disk of this folder."""

from workloads import HERE

from unstarve.labs.parts_direct import STATES, direct_speedup

for state in STATES:
    found = direct_speedup(HERE, state)
    print(f"{state}: {found if isinstance(found, str) else f'direct reads are {found} as fast'}")
