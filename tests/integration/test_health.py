"""What a run shows to be wrong reaches its report."""

from __future__ import annotations

import os
from typing import Any

import pytest

import unstarve

ONE_SHARD = """
    import torch
    from torch.utils.data import DataLoader, IterableDataset, get_worker_info

    class Shards(IterableDataset):
        def __iter__(self):
            info = get_worker_info()
            for shard in range(info.id, 1, info.num_workers):
                yield from (torch.full((4,), float(shard)) for _ in range(80))

    if __name__ == "__main__":
        for batch in DataLoader(Shards(), batch_size=8, num_workers=2):
            pass
"""

CONFINED = """
    import os, time
    from data import DataLoader, Numbers

    if __name__ == "__main__":
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        for batch in DataLoader(Numbers(80, load_s=0.005), batch_size=8, num_workers=1):
            pass
"""


def test_a_worker_without_a_shard_is_named(project: Any) -> None:
    project.write("one.py", ONE_SHARD)
    found = {one["id"]: one for one in project.record("one.py")["health"]}
    seen = found["fewer-shards-than-workers"]
    assert (seen["file"], seen["line"]) == ("one.py", 12)
    assert "1 of 2 workers" in seen["message"]
    assert seen["doc"] == "docs/checks.md#fewer-shards-than-workers"
    assert "warning fewer-shards-than-workers  one.py:12" in project.unstarve("report", "run.unstarve").stdout


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs Linux")
def test_a_run_knows_the_cores_that_its_processes_may_use(project: Any) -> None:
    project.write("confined.py", CONFINED)
    project.record("confined.py")
    run = unstarve.load_run(project.folder / "run.unstarve")
    cores = os.sched_getaffinity(0)
    main = next(process for process in run.processes if not process.worker)
    worker = next(process for process in run.processes if process.worker)
    assert main.system["first_cores"] == len(cores)
    assert worker.system["affinity"] == [min(cores)]
