"""Planted copies to a GPU and to page-locked memory: what `unstarve run --copies` and torch.profiler say."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unstarve import api
from unstarve.model import Cause, Diagnosis

_LONGEST_S = 90.0
_TRAINING = """
import torch, unstarve
from torch.utils.data import DataLoader, Dataset

class Ready(Dataset):
    rows = torch.ones(16, {floats})
    def __len__(self):
        return 16 * 300
    def __getitem__(self, index):
        return self.rows[index % 16]

def collate(rows, kept=[]):
    if not kept:
        kept.append(torch.stack(rows).share_memory_())
    return kept[0]

layers = [torch.nn.Linear(4096, 4096, bias=False) for _ in range({layers})]
model = torch.nn.Sequential(*layers).to("cuda", torch.bfloat16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
loader = DataLoader(Ready(), batch_size=16, collate_fn=collate, **{options})
kept = {{}}

def to_gpu(batch):
    if {pinned} and "batch" not in kept:
        kept["batch"] = batch.pin_memory()
    return kept.get("batch", batch).to("cuda", non_blocking={non_blocking})

side = torch.cuda.Stream()

def beside(batch):
    with torch.cuda.stream(side):
        there = to_gpu(batch)
    there.record_stream(torch.cuda.current_stream())
    return there  # used before it is complete: only the time matters here

for batch in {loop}:
    x = {move}(batch).flatten()[: 8 * 4096].view(8, 4096).to(torch.bfloat16).repeat(256, 1)
    model(x).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@dataclass(frozen=True)
class Planted:
    name: str
    cause: Cause
    loop: str = "loader"
    move: str = "to_gpu"
    pinned: bool = False
    non_blocking: bool = False
    floats: int = 3 << 20
    layers: int = 8
    options: Mapping[str, Any] = field(default_factory=dict)

    def script(self) -> str:
        return _TRAINING.format(**vars(self))


PLANTED = [
    Planted("pageable, blocking, 200 MB", Cause.COPY),
    Planted("pinned, non-blocking, 200 MB", Cause.COPY, pinned=True, non_blocking=True),
    Planted("pinned, blocking, 200 MB", Cause.COPY, pinned=True),
    Planted(
        "pinned by the loader, 200 MB",
        Cause.PIN,
        non_blocking=True,
        options={"num_workers": 2, "pin_memory": True},
    ),
    Planted("pageable, 1 MB", Cause.COMPUTE, floats=1 << 14),
    Planted("to_device", Cause.COMPUTE, loop='unstarve.to_device(loader, "cuda")', floats=3 << 18, layers=24),
    Planted("side stream", Cause.COMPUTE, move="beside", pinned=True, non_blocking=True, layers=24),
]


def tell_copies(only: str | None, until: float) -> None:
    """Print a line for each case: what is planted, what is said, and both shares of copies.

    No case begins after the moment `until` of the monotonic clock, and none takes longer than `_LONGEST_S`.
    """
    print(f"{'':32}{'planted':>9}{'verdict':>9}{'copy':>8}{'truth':>8}{'timed':>7}")
    for case in PLANTED:
        if only is None or only in case.name:
            try:
                if time.monotonic() > until:
                    raise TimeoutError
                said, profiled = _recorded(case, "--copies"), _recorded(case, "--profile")
            except (TimeoutError, subprocess.TimeoutExpired):
                print(f"{case.name:32}not measured: the time is up", flush=True)
                continue
            share = None if said.copies is None else said.copies.share
            steps = 0 if said.copies is None else said.copies.steps
            cells = "".join(f"{'–' if one is None else f'{one:.1%}':>8}" for one in (share, _truth(profiled)))
            print(f"{case.name:32}{case.cause:>9}{said.verdict.cause:>9}{cells}{steps:7}", flush=True)


def _recorded(case: Planted, *options: str) -> Diagnosis:
    with tempfile.TemporaryDirectory() as folder:
        script, run = Path(folder) / "train.py", Path(folder) / "run.unstarve"
        script.write_text(case.script())
        command = [sys.executable, "-m", "unstarve", "run", "-q", *options, "-o", str(run)]
        subprocess.run([*command, sys.executable, str(script)], check=True, timeout=_LONGEST_S)
        return api.diagnose(api.load_run(run))


def _truth(d: Diagnosis) -> float | None:
    """The profiler's share of time in which a copy from the host ran and no kernel did."""
    if d.profile is None or not d.profile.devices:
        return None
    return max(one.exposed_copy_s for one in d.profile.devices) / d.profile.window_s
