"""A state is small and plain, fits only the loader it is for, and costs no sample to resume from."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import Dataset, RandomSampler, TensorDataset

import unstarve
from resumed import AnyEngine, Stop, disturb, through_a_checkpoint, train
from same_batches import assert_same
from unstarve import DataLoader
from unstarve.errors import UsageError

MILLION = 1_000_000


class Counted(Dataset[Any]):
    """A million samples that count how often they are read."""

    def __init__(self) -> None:
        self.read: list[int] = []

    def __len__(self) -> int:
        return MILLION

    def __getitem__(self, index: int) -> int:
        self.read.append(index)
        return index


def begun(loader: Any, given: int) -> Any:
    """Return the iterator of an epoch that has given some batches."""
    iterator = iter(loader)
    for _ in range(given):
        next(iterator)
    return iterator


def state_after(given: int, **arguments: Any) -> Any:
    loader = DataLoader(AnyEngine(), **{"batch_size": 4, **arguments})
    iterator = begun(loader, given)
    state = loader.state_dict()
    del iterator
    return state


def test_a_million_samples_resume_without_reading_those_given() -> None:
    order = list(RandomSampler(range(MILLION), generator=torch.Generator().manual_seed(8)))
    generator = torch.Generator().manual_seed(8)
    loader = DataLoader(Counted(), batch_size=100, sampler=RandomSampler(range(MILLION), generator=generator))
    iterator = begun(loader, 1)
    state = loader.state_dict()
    del iterator
    state["epoch"]["given"] = state["epoch"]["asked"] = 5_000
    dataset = Counted()
    resumed = DataLoader(
        dataset, batch_size=100, sampler=RandomSampler(range(MILLION), generator=torch.Generator())
    )
    resumed.load_state_dict(state)
    assert next(iter(resumed)).tolist() == order[500_000:500_100]
    assert dataset.read == order[500_000:500_100]


def test_a_state_is_small_whatever_the_dataset() -> None:
    loader = DataLoader(TensorDataset(torch.arange(MILLION)), batch_size=1000, shuffle=True)
    iterator = begun(loader, 3)
    assert len(pickle.dumps(loader.state_dict())) < 50_000
    del iterator


def test_a_state_holds_nothing_that_the_loader_changes_later() -> None:
    loader = DataLoader(AnyEngine(), batch_size=4, shuffle=True, num_workers=1)
    iterator = begun(loader, 2)
    state = loader.state_dict()
    before = copy.deepcopy(state)
    list(iterator)
    list(loader)
    assert state == before


@pytest.mark.parametrize("workers", [0, 1])
def test_a_state_survives_json(workers: int) -> None:
    def loader() -> Any:
        sampler = RandomSampler(range(23))
        return DataLoader(AnyEngine(), batch_size=4, sampler=sampler, engine="stock", num_workers=workers)

    disturb(11)
    first = loader()
    iterator = begun(first, 2)
    state = json.loads(json.dumps(first.state_dict()))
    rest = [batch[1].tolist() for batch in iterator]
    later = [batch[1].tolist() for batch in first]
    disturb()
    second = loader()
    second.load_state_dict(state)
    assert [batch[1].tolist() for batch in second] == rest
    assert [batch[1].tolist() for batch in second] == later


def test_a_state_saved_before_the_first_epoch_begins_it() -> None:
    disturb(11)
    loader = DataLoader(AnyEngine(), batch_size=4, shuffle=True)
    state = loader.state_dict()
    whole, _ = train(loader, 2)
    disturb()
    loader = DataLoader(AnyEngine(), batch_size=4, shuffle=True)
    loader.load_state_dict(through_a_checkpoint(state))
    assert_same(train(loader, 2)[0], whole)


def test_a_state_that_was_loaded_can_be_saved_before_it_is_used() -> None:
    disturb(11)
    first = DataLoader(AnyEngine(), batch_size=4, shuffle=True)
    _, state = train(first, 1, Stop(0, 3))
    second = DataLoader(AnyEngine(), batch_size=4, shuffle=True)
    second.load_state_dict(state)
    again = second.state_dict()
    expected = [batch[1].tolist() for batch in second]
    disturb()
    third = DataLoader(AnyEngine(), batch_size=4, shuffle=True)
    third.load_state_dict(again)
    assert [batch[1].tolist() for batch in third] == expected
    assert len(expected) == 3


def test_the_loader_that_saved_a_state_can_load_it() -> None:
    for arguments in ({}, {"num_workers": 1, "persistent_workers": True}):
        disturb(11)
        loader = DataLoader(AnyEngine(), batch_size=4, engine="ring" if arguments else "stock", **arguments)
        iterator = begun(loader, 2)
        state = loader.state_dict()
        rest = [batch[1].tolist() for batch in iterator]
        list(loader)
        loader.load_state_dict(state)
        assert [batch[1].tolist() for batch in loader] == rest
        assert len(list(loader)) == len(loader) == 6


def test_an_empty_state_starts_afresh() -> None:
    loader = DataLoader(AnyEngine(), batch_size=4)
    loader.load_state_dict(state_after(2))
    loader.load_state_dict({})
    assert len(list(loader)) == 6


def test_the_length_of_a_resumed_loader_is_that_of_a_whole_epoch() -> None:
    loader = DataLoader(AnyEngine(), batch_size=4)
    loader.load_state_dict(state_after(2))
    iterator = iter(loader)
    assert len(loader) == len(iterator) == 6
    assert len(list(iterator)) == 4


def test_a_failed_batch_is_not_given_again() -> None:
    class Fails(AnyEngine):
        rows = None  # type: ignore[assignment]
        read_batch = None  # type: ignore[assignment]

        def __getitem__(self, index: int) -> Any:
            if index == 5:
                raise ValueError("bad sample")
            return index

    for workers in (0, 1):
        loader = DataLoader(Fails(), batch_size=4, num_workers=workers)
        iterator = begun(loader, 1)
        with pytest.raises(ValueError, match="bad sample"):
            next(iterator)
        resumed = DataLoader(Fails(), batch_size=4, num_workers=workers)
        resumed.load_state_dict(loader.state_dict())
        assert next(iter(resumed)).tolist() == [8, 9, 10, 11]
        del iterator


def test_two_loaders_of_a_training_do_not_disturb_each_other() -> None:
    def run(resume: bool) -> list[Any]:
        disturb(11)
        training, validation = (DataLoader(AnyEngine(), batch_size=8, shuffle=True) for _ in range(2))
        seen: list[Any] = []
        for epoch in range(3):
            for given, batch in enumerate(training, 1):
                seen.append((batch[1].tolist(), torch.rand(()).item()))
                if resume and (epoch, given) == (1, 2):
                    states = training.state_dict(), validation.state_dict()
                    disturb()
                    training, validation = (
                        DataLoader(AnyEngine(), batch_size=8, shuffle=True) for _ in range(2)
                    )
                    training.load_state_dict(states[0])
                    validation.load_state_dict(states[1])
                    seen += [(batch[1].tolist(), torch.rand(()).item()) for batch in training]
                    break
            seen.append([batch[1].tolist() for batch in validation])
        return seen

    assert run(resume=True) == run(resume=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 8}, "the state was saved with batch_size=4 and this loader has batch_size=8"),
        ({"drop_last": True}, "drop_last=False and this loader has drop_last=True"),
        ({"shuffle": True}, "saved with sampler=SequentialSampler and this loader has sampler=RandomSampler"),
        ({"sampler": range(8)}, "saved with sampler=SequentialSampler and this loader has sampler=range"),
        ({"dataset": AnyEngine(22)}, "the state was saved with 23 samples and this loader has 22 samples"),
    ],
)
def test_a_state_of_another_loader_is_refused_and_the_difference_named(
    arguments: dict[str, Any], message: str
) -> None:
    loader = DataLoader(**{"dataset": AnyEngine(), "batch_size": 4, **arguments})
    with pytest.raises(UsageError, match=message):
        loader.load_state_dict(state_after(1))


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"_snapshot": 1}, "not a state of unstarve.DataLoader: a dict with '_snapshot'"),
        (["what"], "not a state of unstarve.DataLoader"),
        ({"unstarve_loader": 99}, "the state has version 99 and this unstarve reads version 1"),
    ],
)
def test_a_foreign_state_is_refused(state: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        DataLoader(AnyEngine()).load_state_dict(state)


def test_a_refused_state_changes_nothing() -> None:
    loader = DataLoader(AnyEngine(), batch_size=4)
    iterator = begun(loader, 2)
    before = loader.state_dict()
    with pytest.raises(UsageError):
        loader.load_state_dict({"unstarve_loader": 99})
    assert loader.state_dict() == before
    assert len(list(iterator)) == 4


def test_batches_without_an_order_cannot_be_saved_within_an_epoch() -> None:
    loader = DataLoader(AnyEngine(), batch_size=4, engine="ring", num_workers=1, in_order=False)
    iterator = begun(loader, 1)
    with pytest.raises(UsageError, match="in_order=False gives batches in no fixed order"):
        loader.state_dict()
    list(iterator)
    assert loader.state_dict()["epoch"] is None


def test_a_loader_with_its_own_iterators_says_that_it_cannot_be_saved() -> None:
    class Own(DataLoader[Any]):
        def _get_iterator(self) -> Any:
            return super()._get_iterator()

    loader = Own(AnyEngine(), batch_size=4, engine="stock")
    iterator = begun(loader, 1)
    with pytest.raises(UsageError, match="Own makes its own iterators"):
        loader.state_dict()
    del iterator


def test_an_autotuned_loader_of_ours_has_a_state() -> None:
    class Plain(Dataset[Any]):
        def __len__(self) -> int:
            return 23

        def __getitem__(self, index: int) -> int:
            return index

    def tuned() -> Any:
        return unstarve.autotune(DataLoader(Plain(), batch_size=4, shuffle=True))

    loader = tuned()
    iterator = begun(loader, 2)
    state = loader.state_dict()
    rest = [batch.tolist() for batch in iterator]
    disturb()
    resumed = tuned()
    resumed.load_state_dict(state)
    assert [batch.tolist() for batch in resumed] == rest
    assert not hasattr(unstarve.autotune(TorchDataLoader(Plain())), "state_dict")


def test_a_copy_of_a_loader_starts_afresh() -> None:
    loader = DataLoader(AnyEngine(), batch_size=4)
    iterator = begun(loader, 2)
    again = pickle.loads(pickle.dumps(loader))
    assert again.state_dict()["epoch"] is None
    assert len(list(again)) == 6
    del iterator
