"""What a recorder finds out about a dataset without reading a sample."""

from __future__ import annotations

import random
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, StackDataset, Subset, TensorDataset

from unstarve.collect.dataset_facts import dataset_facts

ROWS = TensorDataset(torch.zeros(6, 2), torch.zeros(6))


class Plain(Dataset[Any]):
    """Fails when it is read: facts must not need a sample."""

    def __init__(self, **held: Any) -> None:
        self.__dict__.update(held)

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("a sample was read")


def test_no_dataset_has_no_facts() -> None:
    assert dataset_facts(None) == {}


def test_a_dataset_tells_its_module_and_length() -> None:
    assert dataset_facts(Plain()) == {"module": __name__, "length": 3}


@pytest.mark.parametrize(
    "dataset",
    [
        ROWS,
        Subset(Subset(ROWS, [1, 2]), [0]),
        StackDataset(x=ROWS, y=torch.zeros(6)),  # type: ignore[arg-type]  # a tensor is a dataset, too
        torch.zeros(3, 2),
    ],
)
def test_rows_of_tensors_are_known_wherever_they_are(dataset: Any) -> None:
    assert dataset_facts(dataset)["columns_in_memory"] is True


def test_a_tensor_dataset_with_its_own_samples_is_not_its_rows() -> None:
    class Shifted(TensorDataset):
        def __getitem__(self, index: Any) -> Any:
            return super().__getitem__(index)[0] + 1

    assert "columns_in_memory" not in dataset_facts(Shifted(torch.zeros(3, 2)))


def test_a_stream_is_told_from_a_map() -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            raise AssertionError("a sample was read")

    assert dataset_facts(Stream()) == {"module": __name__, "iterable": True}


@pytest.mark.parametrize("data", [[torch.zeros(2)], (1, 2), {0: 1}, np.zeros(3)])
def test_a_container_is_not_wrapped_blindly(data: Any) -> None:
    assert dataset_facts(data)["plain"] is True
    assert "plain" not in dataset_facts([(torch.zeros(2), 1)])


class Epochs(Plain):
    def set_epoch(self, epoch: int) -> None: ...


class MakesGenerators(Plain):
    def __getitem__(self, index: int) -> Any:
        return np.random.default_rng().random()


RNG = np.random.default_rng(0)


def noisy(value: float) -> float:
    return value + RNG.random()


class UsesGlobal(Plain):
    def __getitem__(self, index: int) -> Any:
        return self.noise(index)

    def noise(self, index: int) -> Any:
        return noisy(index)


def closed_over() -> Any:
    mine = random.Random(0)
    return lambda value: value + mine.random()


class Unwilling(Plain):
    @property
    def set_epoch(self) -> Any:
        raise RuntimeError("not now")


@pytest.mark.parametrize(
    "dataset",
    [
        Plain(generator=torch.Generator()),
        Plain(transform=[types.SimpleNamespace(rng=random.Random())]),
        Plain(transform={"flip": types.SimpleNamespace(rng=np.random.default_rng())}),
        Subset(Plain(rng=np.random.RandomState()), [0]),
        Epochs(),
        MakesGenerators(),
        UsesGlobal(),
        Plain(transform=noisy),
        Plain(transform=closed_over()),
        Unwilling(),
    ],
)
def test_a_dataset_with_random_numbers_of_its_own_may_change(dataset: Any) -> None:
    assert dataset_facts(dataset)["keeps_state"] is True


def test_a_dataset_that_holds_much_is_not_searched_to_the_end() -> None:
    loop: list[Any] = []
    loop.append(loop)
    held = Plain(loop=loop, module=random, many=[[[0] * 1000] * 1000] * 1000)
    assert "keeps_state" not in dataset_facts(held)


def test_more_facts_are_asked_for_and_an_error_there_costs_nothing(tmp_path: Path) -> None:
    assert dataset_facts(Plain(root=str(tmp_path)), lambda dataset: {"like": True}) == {
        "module": __name__, "length": 3, "root": str(tmp_path), "like": True,
    }  # fmt: skip
    assert dataset_facts(Plain(), lambda dataset: {}["missing"]) == {"module": __name__, "length": 3}


class Tokens(Plain):
    """Maps its file on first use."""

    def read(self) -> Any:
        return np.memmap(self.path, np.uint16, "r")


def test_a_mapped_file_is_known_before_and_after_it_is_mapped(tmp_path: Path) -> None:
    path = tmp_path / "tokens.bin"
    np.zeros(500, np.uint16).tofile(path)
    for dataset in (Tokens(path=path), Plain(tokens=np.memmap(path, np.uint16, "r"))):
        facts = dataset_facts(dataset)
        assert (facts["mapped_file"], facts["mapped_bytes"]) == (str(path), 1000)
    assert "mapped_file" not in dataset_facts(Tokens(path=tmp_path / "gone.bin"))
