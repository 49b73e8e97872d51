"""Pauses at the beginning of epochs are found where they cost time."""

from __future__ import annotations

import dataclasses

import pytest

from fake_health import epochs_run, found, ids, spent
from unstarve.model import Cause, Rejected


def test_workers_that_end_with_their_epoch() -> None:
    (one,) = found(epochs_run(), spent(Cause.STARTUP, 0.3, epochs=3))
    assert one.id == "workers-each-epoch"
    assert "Each of 3 epochs starts 2 workers and waits 505 ms" in one.message
    assert "30% of the time" in one.message
    assert one.fix == "Pass persistent_workers=True to loader."
    assert one.where == "train.py:1"
    assert one.harm == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("share", "start_s", "config"),
    [(0.04, 0.5, {}), (0.3, 0.0, {}), (0.3, 0.5, {"persistent_workers": True})],
    ids=["cheap", "no pause", "kept workers"],
)
def test_epochs_without_a_costly_start_are_healthy(
    share: float, start_s: float, config: dict[str, bool]
) -> None:
    d = spent(Cause.STARTUP, share, epochs=3, config=config)
    assert ids(epochs_run(start_s=start_s), d) == []


def test_a_first_epoch_alone_tells_nothing() -> None:
    assert ids(epochs_run(epochs=1), spent(Cause.STARTUP, 0.3)) == []


def test_what_the_advice_rejects_is_not_a_finding() -> None:
    d = spent(Cause.STARTUP, 0.3, epochs=3)
    d = dataclasses.replace(d, rejected=(Rejected("persistent-workers", "it", "would not help"),))
    assert ids(epochs_run(), d) == []


def test_epochs_shorter_than_the_pipeline() -> None:
    config = {"persistent_workers": True, "prefetch_factor": 2}
    d = spent(Cause.STARTUP, 0.4, epochs=50, workers=4, config=config)
    (one,) = found(epochs_run(batches=4), d)
    assert one.id == "tiny-epochs"
    assert "has 4 batches, but its workers prefetch 8" in one.message
    assert "num_samples=20 * len(dataset)" in one.fix
    longer = spent(Cause.STARTUP, 0.4, epochs=10, workers=4, config=config)
    assert ids(epochs_run(), longer) == []


def test_a_large_dataset_that_is_pickled() -> None:
    weight = {"largest_attribute": "self.paths", "largest_bytes": 210_000_000}
    config = {"multiprocessing_context": "spawn", "persistent_workers": True}
    (one,) = found(epochs_run(), spent(Cause.STARTUP, 0.3, epochs=3, config=config, dataset=weight))
    assert one.id == "large-pickled-dataset"
    assert "self.paths (210 MB) is pickled for each of 2 workers" in one.message
    assert "unstarve.share(dataset)" in one.fix
    forked = {"multiprocessing_context": "fork", "persistent_workers": True}
    assert ids(epochs_run(), spent(Cause.STARTUP, 0.3, epochs=3, config=forked, dataset=weight)) == []


def test_a_first_batch_that_takes_long() -> None:
    d = spent(Cause.COMPUTE, 0.0)
    (one,) = found(epochs_run(epochs=1, start_s=30), dataclasses.replace(d, wall_s=100.0))
    assert (one.id, one.severity) == ("slow-start", "note")
    assert "30.0 s after iter(), 30% of the run" in one.message
    assert ids(epochs_run(epochs=1, start_s=30), dataclasses.replace(d, wall_s=10_000.0)) == []
    assert ids(epochs_run(epochs=1, start_s=3), dataclasses.replace(d, wall_s=10.0)) == []
