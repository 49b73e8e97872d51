"""The engines under scripts that know only torch's loader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

import unstarve
from same_batches import assert_same, assert_same_epochs
from unstarve.fixes.loader.engines.torch_epoch import BegunEpoch, EpochIterator
from unstarve.steer.run_on_engine import iterate_on_engine

X = torch.arange(115.0).reshape(23, 5)
TORCH_ITER = DataLoader.__iter__


Install = Callable[..., None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Let torch's loaders run on an engine until the test is over; a second call changes the engine."""

    def install(engine: str = "auto") -> None:
        monkeypatch.setattr(DataLoader, "__iter__", iterate_on_engine(TORCH_ITER, engine))

    return install


def is_ours(iterator: Any) -> bool:
    return isinstance(iterator, (EpochIterator, BegunEpoch))


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("workers", [0, 1])
def test_torchs_loader_gives_its_own_batches_faster(install: Install, shuffle: bool, workers: int) -> None:
    def make() -> Any:
        return DataLoader(X, batch_size=4, shuffle=shuffle, num_workers=workers)

    theirs = make()
    torch.manual_seed(1)
    expected = [list(theirs), list(theirs)]
    install()
    assert is_ours(iter(make()))
    ours = make()
    torch.manual_seed(1)
    assert_same([list(ours), list(ours)], expected)


def test_no_script_finds_its_dataset_changed(install: Install) -> None:
    data = X.clone()
    install()
    for batch in DataLoader(data, batch_size=4):
        batch.zero_()
    assert torch.equal(data, X)
    install("views")
    assert next(iter(DataLoader(data))).data_ptr() == data.data_ptr()


class Doubled(DataLoader[Any]):
    """As Accelerate's loaders do: batches of torch's iterator, and something done to them."""

    def __iter__(self) -> Any:
        for batch in super().__iter__():
            yield batch * 2


class OwnIterator(DataLoader[Any]):
    def _get_iterator(self) -> Any:
        return iter(["mine"])


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata's call
def test_subclasses_keep_their_own_ways(install: Install) -> None:
    install()
    assert torch.equal(torch.cat(list(Doubled(X, batch_size=4))), X * 2)
    assert list(OwnIterator(X)) == ["mine"]
    stateful: Any = StatefulDataLoader(X, batch_size=4)
    iterator = iter(stateful)
    assert not is_ours(iterator)
    next(iterator)
    assert stateful.state_dict()["_num_yielded"] == 1


def test_our_own_loader_still_chooses_for_itself(install: Install) -> None:
    install("stock")
    assert is_ours(iter(unstarve.DataLoader(X)))
    install("gather")
    assert not is_ours(iter(unstarve.DataLoader(X, engine="stock")))
    assert not is_ours(iter(unstarve.DataLoader(X, collate_fn=list)))


def test_what_auto_cannot_run_is_torchs_without_a_word(install: Install) -> None:
    install()
    assert not is_ours(iter(DataLoader(X, collate_fn=list)))
    assert len(list(DataLoader(range(5), batch_size=2))) == 3  # type: ignore[arg-type]


def test_an_engine_asked_for_by_name_that_cannot_raises_as_in_the_python_api(install: Install) -> None:
    install("gather")
    with pytest.raises(ValueError, match=r"engine 'gather' cannot run.*collate_fn list.*--engine auto"):
        iter(DataLoader(X, collate_fn=list))
    assert is_ours(iter(DataLoader(X)))


def test_a_name_that_is_no_engine_is_refused() -> None:
    with pytest.raises(ValueError, match="'fast' is not a valid Engine"):
        iterate_on_engine(TORCH_ITER, "fast")


def test_persistent_workers_draw_as_torchs_do(install: Install) -> None:
    def make() -> Any:
        return DataLoader(TensorDataset(X), 4, shuffle=True, num_workers=1, persistent_workers=True)

    def installed() -> Any:
        install()
        return make()

    assert_same_epochs(make, installed)
