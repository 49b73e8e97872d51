"""The verdict on planted bottlenecks, through the public command line.

Only sleeps are planted, long beside anything that a busy machine adds: what is on a CPU may be called
contention there, and rightly so. ``test_zoo.py`` has such cases, too, for a machine that is left to them.
"""

from __future__ import annotations

import pytest

TRAIN = """
import sys
from data import *

class Late:
    def __init__(self, count):
        self.count = count
    def __len__(self):
        return self.count
    def __iter__(self):
        for index in range(self.count):
            time.sleep(0.05)
            yield index

def begin(worker):
    time.sleep(0.5)

def main(planted):
    if planted == "samples":
        return DataLoader(Numbers(40, load_s=0.05)), 1
    if planted == "samples of a worker":
        return DataLoader(Numbers(40, load_s=0.05), num_workers=1), 1
    if planted == "indices":
        return DataLoader(Numbers(40), sampler=Late(40)), 1
    if planted == "indices for a worker":
        options = {"num_workers": 1, "prefetch_factor": 5, "persistent_workers": True}
        return DataLoader(Numbers(5), sampler=Late(5), **options), 8
    return DataLoader(Numbers(5), num_workers=1, worker_init_fn=begin), 8

loader, epochs = main(sys.argv[1])
for epoch in range(epochs):
    for batch in loader:
        pass
"""


@pytest.mark.parametrize(
    ("planted", "cause"),
    [
        ("samples", "remote"),
        ("samples of a worker", "remote"),
        ("indices", "sampler"),
        ("indices for a worker", "sampler"),
        ("workers", "startup"),
    ],
)
def test_what_is_late_is_named(project, planted: str, cause: str) -> None:
    project.write("train.py", TRAIN)
    verdict = project.record("train.py", planted)["verdict"]
    assert (verdict["state"], verdict["cause"]) == ("starved", cause), verdict["evidence"]
