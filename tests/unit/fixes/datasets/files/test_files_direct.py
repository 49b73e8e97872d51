"""How files are read: past the page cache or through it, and how many reads are in flight."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tensor_files import save_numbered
from unstarve import TensorFileDataset
from unstarve.fixes.datasets.files import tensor_reading
from unstarve.fixes.datasets.files.tensor_reading import DepthTrials
from unstarve.fixes.io.page_cache import evict, residency

pytestmark = pytest.mark.usefixtures("readers")


@pytest.mark.parametrize("raw", [False, True])
def test_direct_reads_leave_nothing_in_the_page_cache(raw: bool, readers: str, tmp_path: Path) -> None:
    if readers == "fallback" and not raw:
        pytest.skip("libraries read through the page cache")
    for i in range(4):
        if raw:
            (tmp_path / f"{i}.bin").write_bytes(np.full(50_000, i, np.float32).tobytes())
        else:
            torch.save(torch.full((50_000,), float(i)), tmp_path / f"{i}.pt")
    paths = sorted(tmp_path.iterdir())
    for path in paths:
        evict(path)
    if any(residency(path) != 0 for path in paths):
        pytest.skip("this file system's pages cannot be dropped or counted")
    given = {"dtype": torch.float32, "shape": (50_000,)} if raw else {}
    dataset = TensorFileDataset(tmp_path, direct=True, **given)
    assert dataset.explain() == "nothing has been read yet"
    batch = dataset.read_batch(range(4))
    if dataset.explain().startswith("through"):
        pytest.skip("this file system has no direct reads")
    assert batch[:, -1].tolist() == [0, 1, 2, 3]
    assert [residency(path) for path in paths] == [0] * 4
    assert dataset.explain().startswith("past the page cache")


def test_direct_reads_that_are_refused_are_announced() -> None:
    with pytest.warns(RuntimeWarning, match="no direct reads: files are read through the page cache"):
        TensorFileDataset(["/proc/version"], dtype=torch.uint8, shape=(5,), direct=True)


def test_direct_reads_that_need_the_native_part_are_announced(readers: str, tmp_path: Path) -> None:
    paths = save_numbered(tmp_path)
    if readers == "native":
        TensorFileDataset(paths, direct=True)
        return
    with pytest.warns(RuntimeWarning, match="without the native part only raw files are read directly"):
        dataset = TensorFileDataset(paths, direct=True)
    assert dataset.read_batch([3])[0, 0, 0] == 3
    assert dataset.explain() == "through the page cache"


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize(
    ("room_bytes", "share", "direct"),
    [(10**12, 0.0, False), (1, 0.0, True), (1, 1.0, False), (1, None, False)],
)
def test_auto_goes_past_the_cache_for_what_is_not_in_it_and_would_not_fit(
    room_bytes: int,
    share: float | None,
    direct: bool,
    raw: bool,
    readers: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if raw:
        for i in range(10):
            (tmp_path / f"{i}.bin").write_bytes(np.full((4, 5), i, np.float32).tobytes())
        dataset = TensorFileDataset(tmp_path, direct="auto", dtype=torch.float32, shape=(4, 5))
    else:
        dataset = TensorFileDataset(save_numbered(tmp_path), direct="auto")
    monkeypatch.setattr(tensor_reading, "available_bytes", lambda: room_bytes)
    monkeypatch.setattr(tensor_reading, "residency", lambda path: share)
    assert dataset.read_batch(range(10))[:, 0, 0].tolist() == list(range(10))
    outcome = dataset._files.last
    assert outcome is not None
    can_be_direct = raw or readers == "native"
    assert (outcome.direct_bytes > 0 or outcome.direct_refused) == (direct and can_be_direct)


def test_auto_reads_a_batch_that_is_left_to_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = save_numbered(tmp_path)
    torch.save("no tensor", tmp_path / "text.pt")
    dataset = TensorFileDataset([*paths, tmp_path / "text.pt"], direct="auto")
    monkeypatch.setattr(tensor_reading, "available_bytes", lambda: 1)
    assert dataset[10] == "no tensor"


def test_the_depth_is_what_was_fastest() -> None:
    trials = DepthTrials()
    rates = {16: 50, 32: 60, 64: 90}
    for _ in range(12):
        depth = trials.depth_for(64)
        trials.record(depth, 64, rates[depth], 1.0)
    assert trials.depth_for(64) == 64
    assert trials.depth_for(1) == 64


def test_the_depth_stays_where_nothing_is_much_faster_or_nothing_can_be_told() -> None:
    trials = DepthTrials()
    assert trials.depth_for(8) == tensor_reading.DEFAULT_DEPTH
    trials.record(16, 8, 10**9, 1.0)
    for _ in range(12):
        depth = trials.depth_for(64)
        trials.record(depth, 64, 100 + depth // 16, 1.0)
    assert trials.depth_for(64) == tensor_reading.DEFAULT_DEPTH
