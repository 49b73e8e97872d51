"""The snapshot for PyTorch's memory viewer, on a stand-in for CUDA."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import unstarve
from unstarve.collect import memory_snapshot
from unstarve.collect.memory_snapshot import NEEDS_CUDA
from unstarve.collect.profiler_window import ProfilerWindow
from unstarve.errors import UsageError
from unstarve.model.launch_settings import ProfileSettings


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    made: list[str] = []

    def record(enabled: Any = "all", **_: Any) -> None:
        made.append("off" if enabled is None else "on")

    monkeypatch.setattr(memory_snapshot, "cuda_in_use", lambda: True)
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", record)
    monkeypatch.setattr(torch.cuda.memory, "_dump_snapshot", lambda file: made.append(Path(file).name))
    return made


def run_window(folder: Path) -> list[str]:
    lost: list[str] = []
    settings = ProfileSettings(wait=1, warmup=1, active=1, memory_snapshot=str(folder / "m.pickle"))
    window = ProfilerWindow(settings, folder, lost.append)
    for _ in range(6):
        window.before_batch(0)
    window.close()
    return lost


def test_the_window_is_recorded_and_written_once(tmp_path: Path, calls: list[str]) -> None:
    assert run_window(tmp_path) == []
    assert calls == ["on", "m.pickle", "off"]


def test_each_rank_has_its_own_file(
    tmp_path: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "2")
    run_window(tmp_path)
    assert calls == ["on", "m.rank2.pickle", "off"]


def test_without_cuda_one_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_snapshot, "cuda_in_use", lambda: False)
    assert run_window(tmp_path) == [NEEDS_CUDA]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match="memory_snapshot needs CUDA"):
        unstarve.profile(memory_snapshot=tmp_path / "m.pickle").__enter__()
