"""An evaluator around an iterator of DALI, which is its own loader and cannot go back."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from dali_stand_in import dali, importable_dali
from unstarve.evaluate.evaluator.loader_evaluator import LoaderEvaluator


@pytest.fixture(autouse=True)
def _importable(tmp_path: Path) -> Iterator[None]:
    with importable_dali(tmp_path):
        yield


def iterator(samples: int = 10, **settings: Any) -> Any:
    module = dali()
    pipeline = sys.modules["nvidia.dali.plugin.base_iterator"].Pipeline(samples, 4)  # type: ignore[attr-defined]  # the stand-in's
    return module.DALIClassificationIterator(pipeline, **settings)


def sizes(batches: Any) -> list[int]:
    return [len(one["label"]) for (one,) in batches]


@pytest.mark.parametrize("auto_reset", [False, True])
def test_epochs_of_the_real_run_are_logged(auto_reset: bool) -> None:
    loader = iterator(reader_name="files", auto_reset=auto_reset)
    evaluator: Any = LoaderEvaluator(loader)
    for _ in range(2):
        assert sizes(evaluator) == [4, 4, 2]
        if not auto_reset:
            evaluator.reset()
    metrics = evaluator.get_metrics()
    assert (len(evaluator), evaluator.size, evaluator.batch_size, loader.resets) == (3, 10, 4, 2)
    assert metrics["batch_sizes"] == [4, 4, 2, 4, 4, 2]
    assert metrics["samples"] == 20
    assert [epoch["complete"] for epoch in metrics["epochs"]] == [True, True]
    assert isinstance(evaluator, dali().DALIClassificationIterator)


@pytest.mark.parametrize("auto_reset", [False, True])
def test_replayed_epochs_are_as_long_as_its_own(auto_reset: bool, capsys: pytest.CaptureFixture[str]) -> None:
    loader = iterator(reader_name="files", auto_reset=auto_reset)
    evaluator: Any = LoaderEvaluator(loader, mode="replay", num_cached_batches=2)
    for _ in range(2):
        assert sizes(evaluator) == [4, 4, 4]
        evaluator.reset()
    assert capsys.readouterr().out == ""  # DALI would have said that it ignores a reset in mid-epoch
    assert sizes(loader) == [2]


def test_a_source_of_unknown_length_is_replayed_without_end() -> None:
    loader = iterator(samples=40)
    assert len(loader) == 0  # so DALI says
    evaluator = LoaderEvaluator(loader, mode="replay", num_cached_batches=2)
    assert sizes(islice(evaluator, 30)) == 30 * [4]
    assert LoaderEvaluator(loader, mode="replay", num_cached_batches=2, replay_batches=5).replay_batches == 5


def test_the_summary_does_not_invent_a_length(capsys: pytest.CaptureFixture[str]) -> None:
    LoaderEvaluator(iterator()).print_summary()
    assert "Number of batches: unknown" in capsys.readouterr().out
