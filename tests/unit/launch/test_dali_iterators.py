"""DALI's iterators are recorded as loaders, and stay what they are."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import unstarve
from dali_stand_in import dali, importable_dali
from unstarve.api import load_run
from unstarve.launch import hooks
from unstarve.model import Process


@pytest.fixture(autouse=True)
def _importable(tmp_path: Path) -> Iterator[None]:
    with importable_dali(tmp_path):
        yield
    hooks.detach()


def pipeline(samples: int = 10, batch_size: int = 4) -> Any:
    dali()
    return sys.modules["nvidia.dali.plugin.base_iterator"].Pipeline(samples, batch_size)


def loader(samples: int = 10, **settings: Any) -> Any:
    return dali().DALIClassificationIterator(pipeline(samples), reader_name="files", **settings)


class Recorded:
    """A recording of this process, and what it holds."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        self._block = unstarve.recording(self.path)
        self._recording = self._block.__enter__()

    def __exit__(self, *raised: Any) -> None:
        self._block.__exit__(*raised)

    @property
    def process(self) -> Process:
        (process,) = load_run(self.path).processes
        return process

    @property
    def diagnosis(self) -> unstarve.Diagnosis:
        return self._recording.diagnosis


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    return Recorded(tmp_path / "dali.unstarve")


def numbers(batches: Any) -> list[list[float]]:
    return [one["data"].flatten().tolist() for (one,) in batches]


TEN = [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0], [8.0, 9.0]]


@pytest.mark.parametrize("imported", ["before", "while recording"])
def test_epochs_and_batches_are_recorded_and_stay_the_same(recorded: Recorded, imported: str) -> None:
    if imported == "before":
        dali()
    with recorded:
        train_loader = dali().DALIClassificationIterator(pipeline(), reader_name="files")
        for _ in range(2):
            assert numbers(train_loader) == TEN
            train_loader.reset()
    process = recorded.process
    (told,) = process.loaders
    assert (told.name, told.kind) == ("train_loader", "DALIClassificationIterator")
    assert "test_dali_iterators.py:" in told.where
    assert told.config == {
        "batch_size": 4, "num_threads": 3, "prefetch_queue_depth": 2, "py_num_workers": 1
    }  # fmt: skip
    assert [(b.epoch, b.position, b.size) for b in process.batches] == [
        (epoch, position, size) for epoch in range(2) for position, size in enumerate((4, 4, 2))
    ]
    assert [epoch.last_ask_ns is None for epoch in process.epochs] == [False, False]
    assert (len(train_loader), train_loader.resets) == (3, 2)


def test_whether_its_threads_wait_for_a_core_is_not_known(recorded: Recorded) -> None:
    with recorded:
        list(loader())
    works = recorded.process.works
    assert [work.queued_ns for work in works if not work.failed] == 3 * [None]


def test_its_batches_have_waits_but_no_price(recorded: Recorded) -> None:
    with recorded:
        list(loader(400))
    diagnosis = recorded.diagnosis
    assert diagnosis.wait_ms is not None
    assert diagnosis.demand is None
    assert diagnosis.lost == ()


def test_without_iter_the_first_batch_begins_an_epoch(recorded: Recorded) -> None:
    with recorded:
        train_loader = loader(auto_reset=True)
        for _ in range(2):
            batches = [train_loader.next(), next(train_loader), train_loader.next()]
            assert numbers(batches) == TEN
            with pytest.raises(StopIteration):
                next(train_loader)
    assert [(b.epoch, b.position) for b in recorded.process.batches] == [
        (epoch, position) for epoch in range(2) for position in range(3)
    ]


def test_asking_for_an_iterator_twice_begins_one_epoch(recorded: Recorded) -> None:
    with recorded:
        train_loader = loader()
        assert iter(train_loader) is train_loader
        assert numbers(iter(train_loader)) == TEN
    assert len(recorded.process.epochs) == 1


def test_an_epoch_that_was_left_early_goes_on_as_another_one(recorded: Recorded) -> None:
    with recorded:
        train_loader = loader()
        assert numbers([next(iter(train_loader))]) == TEN[:1]
        assert numbers(train_loader) == TEN[1:]  # DALI cannot go back
    assert [(b.epoch, b.position) for b in recorded.process.batches] == [(0, 0), (1, 0), (1, 1)]


def test_a_subclass_of_the_user_counts_each_batch_once(recorded: Recorded) -> None:
    dali()
    with recorded:

        class Own(dali().DALIGenericIterator):  # type: ignore[misc]  # made up by the test
            def __init__(self) -> None:
                super().__init__(pipeline(), ["data"], reader_name="files")

            def __next__(self) -> Any:
                (batch,) = super().__next__()
                return batch["data"].flatten()

        assert [batch.tolist() for batch in Own()] == TEN
    process = recorded.process
    assert [b.size for b in process.batches] == [4, 4, 2]
    assert [work.failed for work in process.works] == [False, False, False, True]
    assert process.loaders[0].kind == "Own"


def test_a_batch_of_several_pipelines_counts_all_samples(recorded: Recorded) -> None:
    with recorded:
        list(dali().DALIGenericIterator([pipeline(8), pipeline(8)], ["data"], reader_name="files"))
    assert [b.size for b in recorded.process.batches] == [8, 8]


def test_an_error_ends_the_epoch_and_is_the_users(recorded: Recorded) -> None:
    with recorded:
        train_loader = loader()
        iterator = iter(train_loader)
        next(iterator)
        train_loader._pipes = None
        with pytest.raises(TypeError, match="subscriptable"):
            next(iterator)
    (epoch,) = recorded.process.epochs
    assert epoch.error == "TypeError"


def test_training_and_validation_are_told_apart(recorded: Recorded) -> None:
    with recorded:
        train_loader = dali().DALIClassificationIterator(pipeline(40), reader_name="files")
        val_loader = dali().DALIClassificationIterator(pipeline(40), reader_name="files")
        weight = torch.zeros(1, requires_grad=True)
        for (batch,) in train_loader:
            (weight * batch["data"]).sum().backward()
        with torch.no_grad():
            list(val_loader)
    roles = {one.name: one.role for one in recorded.diagnosis.loaders}
    assert roles == {"train_loader": "train", "val_loader": "validation"}


def test_classes_for_other_frameworks_are_left_alone() -> None:
    dali()
    base = sys.modules["nvidia.dali.plugin.base_iterator"]._DaliBaseIterator
    hooks.attach()
    own_next = type("Jax", (base,), {"__module__": "nvidia.dali.plugin.jax", "__next__": lambda self: 1})
    assert not hasattr(own_next.__next__, "__wrapped__")
    assert not hasattr(own_next.__iter__, "__wrapped__")


def test_detaching_leaves_dali_as_it_was() -> None:
    module = dali()
    classes = [module.DALIGenericIterator, module.DALIClassificationIterator, module._DaliBaseIterator]
    before = [dict(vars(cls)) for cls in classes]
    hooks.attach()
    assert [dict(vars(cls)) for cls in classes] != before
    hooks.detach()
    assert [dict(vars(cls)) for cls in classes] == before


def test_detaching_before_the_import_leaves_nothing_behind() -> None:
    finders = list(sys.meta_path)
    hooks.attach()
    assert len(sys.meta_path) > len(finders)
    hooks.detach()
    assert sys.meta_path == finders
    assert not hasattr(dali().DALIGenericIterator.__next__, "__wrapped__")
