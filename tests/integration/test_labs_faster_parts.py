"""The lab on faster parts with real loaders: the right part delivers the same samples, a wrong one not."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lab_solutions import SOLUTIONS

from unstarve.labs import parts_draw, parts_harness, parts_trial
from unstarve.labs.parts_draw import KINDS, kinds_of
from unstarve.labs.parts_trial import judged, trial_of
from unstarve.labs.started import start

RIGHT = {kind: changes[0][1] for kind, changes in SOLUTIONS["faster-parts"].items()}
CACHED = RIGHT["decoded"]
STOCK = "DataLoader(dataset, batch_size=batch_size, shuffle=True)"


def begin(folder: Path, kind: str) -> str:
    """Start the lab with this kind among its workloads; the slot that it is in."""
    seed = next(seed for seed in range(100) if kind in {one.name for one in kinds_of(seed).values()})
    start("faster-parts", folder, seed=seed)
    return next(slot for slot, one in kinds_of(seed).items() if one.name == kind)


def write_fix(folder: Path, loader: str) -> Path:
    file = folder / "fast_dataloader.py"
    file.write_text(file.read_text().replace(f"return {STOCK}", f"return {loader}"))
    return file


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Little data, and this process as the harness's."""
    for name, kind in KINDS.items():
        few = dataclasses.replace(kind, samples=48, batch_size=8, epochs=min(kind.epochs, 2), step_ms=0.1)
        monkeypatch.setitem(parts_draw.KINDS, name, few)
    monkeypatch.syspath_prepend(tmp_path)  # restores what the harness adds
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def measured(file: Path, slot: str) -> list[dict[str, Any]]:
    return [parts_harness.run(file, slot, 1)] * 2


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kind", RIGHT)
def test_the_right_part_delivers_the_same_samples(kind: str, tmp_path: Path) -> None:
    slot = begin(tmp_path, kind)
    slow = measured(tmp_path / "slow_dataloader.py", slot)
    fast = measured(write_fix(tmp_path, RIGHT[kind]), slot)
    assert judged(slow, fast, goal=0.0)[1] == []
    assert slow[0]["samples"] == 48 * len(slow[0]["digests"])


@pytest.mark.usefixtures("small")
def test_a_cache_around_random_samples_is_found_out(tmp_path: Path) -> None:
    slot = begin(tmp_path, "augmented")
    slow = measured(tmp_path / "slow_dataloader.py", slot)
    fast = measured(write_fix(tmp_path, CACHED), slot)
    _, (missing,) = judged(slow, fast, goal=0.0)
    assert "frozen in the cache" in missing


@pytest.mark.usefixtures("small")
def test_augmentation_in_worker_processes_follows_the_epoch(tmp_path: Path) -> None:
    slot = begin(tmp_path, "augmented")
    slow = measured(tmp_path / "slow_dataloader.py", slot)
    workers = (
        "DataLoader(dataset, batch_size=batch_size, shuffle=True, num_workers=1, persistent_workers=True)"
    )
    assert judged(slow, measured(write_fix(tmp_path, workers), slot), goal=0.0)[1] == []


def test_the_check_runs_both_versions_and_catches_larger_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts_trial, "_ENOUGH_S", 0)
    slot = begin(tmp_path, "rows")
    write_fix(tmp_path, "__import__('unstarve').DataLoader(dataset, batch_size=8 * batch_size, shuffle=True)")
    passed, lines = trial_of(tmp_path, {slot: 0.0})
    assert not passed
    assert "keep the batch size" in lines[1]
    assert not any("same samples" in line for line in lines)


def test_both_scripts_train(tmp_path: Path) -> None:
    slot = begin(tmp_path, "server")
    write_fix(tmp_path, RIGHT["server"])
    for name in ("slow_dataloader.py", "fast_dataloader.py"):
        done = subprocess.run(
            [sys.executable, name, slot],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        )
        assert f"{slot}: server" in done.stderr


def test_images_are_decoded_on_the_cpu_where_there_is_no_gpu(tmp_path: Path) -> None:
    begin(tmp_path, "server")
    done = subprocess.run(
        [sys.executable, "gpu_decoding.py"],
        cwd=tmp_path,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert done.stdout.splitlines()[-1] == "decoded on cpu: there is no CUDA device"
