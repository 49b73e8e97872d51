"""What a worker is sent when it starts."""

from __future__ import annotations

import pytest
from torch.utils.data import DataLoader

from unstarve.checks import start_up
from unstarve.checks.start_up import pickled_for_worker, slow_start
from unstarve.model.check_report import CheckedLoader


def loader_of(dataset: object, method: str | None, workers: int = 2) -> DataLoader[object]:
    context = method if workers else None
    return DataLoader(dataset, num_workers=workers, multiprocessing_context=context)  # type: ignore[arg-type]  # any sequence


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_the_bytes_of_a_pickled_dataset_are_counted(method: str) -> None:
    sent = pickled_for_worker(loader_of([b"x" * 1000] * 3 + [bytes(500_000)], method))
    assert sent is not None
    assert 501_000 < sent.nbytes < 502_000


def test_a_forked_or_unpicklable_dataset_has_no_size() -> None:
    assert pickled_for_worker(loader_of([1], "fork")) is None
    assert pickled_for_worker(loader_of([1], None, workers=0)) is None
    assert pickled_for_worker(loader_of([lambda: 0], "spawn")) is None


def test_pickling_is_given_up_when_it_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_up, "_LONGEST_S", -1.0)
    sent = pickled_for_worker(loader_of([bytes(200_000) for _ in range(50)], "spawn"))
    assert sent is not None
    assert sent.nbytes < 1_000_000


def test_a_slow_first_batch_is_a_note_with_what_was_sent() -> None:
    slow = CheckedLoader(
        "train_loader", "a.py", 3, workers=4, pickled_bytes=10**9, pickle_s=5, first_batch_s=30
    )
    (found,) = slow_start(slow)
    assert found.severity == "note"
    assert "30.0 s after the epoch began; each of its 4 workers is sent 1.0 GB in 5.00 s." in found.message
    assert list(slow_start(CheckedLoader("train_loader", first_batch_s=1))) == []
