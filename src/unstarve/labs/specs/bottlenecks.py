"""Lab 2."""

from __future__ import annotations

import os

from unstarve.labs.lab import Fault, Lab

_DISK = (Fault("disk", "disk", 1.5),) if hasattr(os, "posix_fadvise") else ()
"""Only where files can be kept out of memory."""

LAB = Lab(
    name="bottlenecks",
    title="Which kind of bottleneck?",
    goal="Tell five kinds of bottleneck apart: predict first, then measure, then fix one.",
    minutes=2,
    files=(
        "README.md",
        "case_dataset.py",
        "stopwatch.py",
        "case_a.py",
        "case_b.py",
        "case_c.py",
        "fast_case_a.py",
        "analysis.md",
    ),
    cases=("a", "b", "c"),
    slow="case_a.py",
    edited="fast_case_a.py",
    most_wait_share=0.2,
    faults=(
        *_DISK,
        Fault("cpu", "cpu", 1.5),
        Fault("latency", "remote", 2.0),
        Fault("collate", "collate", 1.5),
        Fault("handoff", "handoff", 1.5),
        Fault("innocent", "fed"),
    ),
    hints=(
        "`python stopwatch.py a` shows which part of a batch takes time: fetching, collating, or neither.",
        "A fetch that takes time but hardly any CPU time waits. The stopwatch does not know for what; the "
        "report of `unstarve run case_a.py` does: `disk` or `remote`.",
        "If fetching and collating are both cheap and training waits all the same, look at how many tensors "
        "a batch has: each is handed over on its own.",
        "Is `contention` the longest bar? Then other programs use your cores. Close them, or take the "
        "second longest bar.",
        "Case a: keep what is slow to fetch, with `unstarve.CachedDataset(dataset)` in "
        "`unstarve.DataLoader`, or stack a batch with the default collate_fn, without workers.",
    ),
)
