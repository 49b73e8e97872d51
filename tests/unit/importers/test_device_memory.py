"""Allocations in a trace: over time, at the peak, by phase and by operator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import profiler

from profiler_files import allocation, event, write_trace
from unstarve.api import diagnose, load_run
from unstarve.importers.import_file import import_file
from unstarve.importers.summarize import profile_of
from unstarve.importers.torch_trace import read_torch_trace
from unstarve.model.profile import Profile

MB = 1_000_000


def training(*allocations: dict[str, Any]) -> dict[str, Any]:
    """A step with a forward operator from 10 to 20 ms, and a backward function from 20 to 40 ms."""
    events = [
        event("user_annotation", "ProfilerStep#0", 0, 50),
        event("cpu_op", "aten::linear", 10, 10),
        event("cpu_op", "aten::empty", 12, 1),
        event("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 20, 20),
    ]
    return {"traceEvents": [*events, *allocations]}


def profile(folder: Path, trace: dict[str, Any]) -> Profile:
    return profile_of(read_torch_trace(write_trace(folder / "t.json", trace), lambda done: None))


def test_the_peak_has_what_was_reserved_and_not_in_use(tmp_path: Path) -> None:
    trace = training(
        allocation(12.5, 30 * MB, allocated=130 * MB, reserved=200 * MB),
        allocation(25, 20 * MB, allocated=150 * MB, reserved=220 * MB),
        allocation(45, -50 * MB, allocated=100 * MB, reserved=220 * MB),
    )
    (memory,) = profile(tmp_path, trace).memory
    assert (memory.device, memory.relative) == ("cuda:0", False)
    assert (memory.peak_bytes, memory.reserved_bytes, memory.unused_bytes) == (150 * MB, 220 * MB, 70 * MB)
    assert memory.peak_at_s == 0.025
    assert memory.allocated == (130 * MB, 150 * MB, 100 * MB)
    phases = {one.name: (one.allocations, one.allocated_bytes, one.net_bytes) for one in memory.by_phase}
    assert phases == {"forward": (1, 30 * MB, 30 * MB), "backward": (1, 20 * MB, 20 * MB)}
    operators = {one.name: one.allocated_bytes for one in memory.by_operator}
    assert operators["aten::linear"] == 30 * MB  # not aten::empty, which it called
    assert len(operators) == 2


def test_without_totals_bytes_count_from_the_beginning(tmp_path: Path) -> None:
    trace = training(allocation(1, -40 * MB), allocation(12.5, 30 * MB), allocation(45, 5 * MB))
    (memory,) = profile(tmp_path, trace).memory
    assert memory.relative
    assert (memory.allocated, memory.peak_bytes) == ((0, 30 * MB, 35 * MB), 35 * MB)
    assert (memory.reserved_bytes, memory.reserved) == (None, ())
    assert {one.name for one in memory.by_operator} == {"aten::linear", "no operator"}


def test_a_long_timeline_is_thinned_and_keeps_its_peak(tmp_path: Path) -> None:
    steps = [allocation(n * 0.02, MB if n % 2 else -MB, allocated=n % 7 * MB) for n in range(2000)]
    steps[777]["args"]["Total Allocated"] = 99 * MB
    (memory,) = profile(tmp_path, training(*steps)).memory
    assert len(memory.at_s) == len(memory.allocated) <= 300
    assert max(memory.allocated) == memory.peak_bytes == 99 * MB
    assert list(memory.at_s) == sorted(memory.at_s)
    assert memory.allocated[-1] == 1999 % 7 * MB


def test_a_trace_of_this_torch_is_read_and_survives_the_run_file(tmp_path: Path) -> None:
    model = torch.nn.Linear(500, 500)
    with profiler.profile(profile_memory=True, record_shapes=True) as profiled:
        model(torch.ones(100, 500)).sum().backward()
    file = tmp_path / "t.json"
    profiled.export_chrome_trace(str(file))
    import_file(file, tmp_path / "t.unstarve", lambda done: None)
    found = diagnose(load_run(tmp_path / "t.unstarve")).profile
    assert found == profile_of(read_torch_trace(file, lambda done: None))
    (memory,) = found.memory
    assert memory.device == "cpu"
    assert memory.peak_bytes >= 500 * 500 * 4
    assert sum(one.allocated_bytes for one in memory.by_operator if one.name == "aten::addmm") == 200_000
