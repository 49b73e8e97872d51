"""Workers that draw the same random numbers."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from tests.helpers.checked import findings, ids
from torch.utils.data import DataLoader, Dataset, Subset, get_worker_info

SEED = 42
MODULE_RNG = np.random.default_rng(0)


class Noisy(Dataset[Any]):
    """Draws from a generator of its own, or of its transform's."""

    def __init__(self, rng: Any, transform: Any = None) -> None:
        self.rng, self.transform = rng, transform

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        value = index if self.transform is None else self.transform(index)
        return value + self._noise()

    def _noise(self) -> float:
        return float(self.rng.random()) if self.rng is not None else 0.0


class Jitter:
    def __init__(self, rng: Any) -> None:
        self.rng = rng

    def __call__(self, value: Any) -> Any:
        return value + self.rng.random()


class Reseeding(Noisy):
    """Random by index, whichever worker makes the sample."""

    def __getitem__(self, index: int) -> Any:
        self.rng.seed(index)
        return super().__getitem__(index)


class PerWorker(Noisy):
    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        self.rng = np.random.default_rng(info.seed if info else 0)
        return super().__getitem__(index)


class Unused(Noisy):
    """Its generator chose the samples once."""

    def __getitem__(self, index: int) -> Any:
        return index


class FromModule(Dataset[Any]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return index + MODULE_RNG.random()


class FromTorch(Dataset[Any]):
    def __init__(self) -> None:
        self.generator = torch.Generator()

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return torch.rand(3, generator=self.generator)


def seed_dataset(worker_id: int) -> None:
    info = get_worker_info()
    assert info is not None
    info.dataset.rng = np.random.default_rng(info.seed)


@pytest.mark.parametrize(
    ("dataset", "path"),
    [
        (Noisy(np.random.default_rng(0)), "train_set.rng"),
        (Noisy(np.random.RandomState(0)), "train_set.rng"),
        (Noisy(random.Random(0)), "train_set.rng"),
        (Noisy(None, Jitter(random.Random(0))), "train_set.transform.rng"),
        (Subset(Noisy(np.random.default_rng(0)), range(4)), "train_set.dataset.rng"),
        (FromTorch(), "train_set.generator"),
        (FromModule(), "MODULE_RNG"),
    ],
)
def test_a_generator_that_every_worker_copies_is_found(dataset: Dataset[Any], path: str) -> None:
    found = findings(DataLoader(dataset, num_workers=2))
    assert [one.id for one in found] == ["generator-before-fork"]
    assert found[0].message.startswith(f"{path} is one ")
    assert "2 workers" in found[0].message


def test_the_fix_makes_workers_differ() -> None:
    loader = DataLoader(Noisy(np.random.default_rng(0)), num_workers=2)
    (found,) = findings(loader)
    scope: dict[str, Any] = {"torch": torch, "np": np}
    exec(found.fix.split("\n\n")[0], scope)  # the pasted function
    mended = DataLoader(loader.dataset, num_workers=2, worker_init_fn=scope["seed_worker"])
    noise = [float(batch) % 1 for batch in loader]
    assert noise[0] == noise[1]
    noise = [float(batch) % 1 for batch in mended]
    assert noise[0] != noise[1]
    assert ids(mended) == []


def test_a_module_level_generator_is_seeded_where_it_lives() -> None:
    (found,) = findings(DataLoader(FromModule(), num_workers=2))
    module = FromModule.__module__
    assert f"    import {module}\n    {module}.MODULE_RNG = np.random.default_rng(info.seed)" in found.fix


@pytest.mark.parametrize(
    "loader",
    [
        DataLoader(Noisy(np.random.default_rng(0)), num_workers=0),
        DataLoader(Noisy(np.random.default_rng(0)), num_workers=2, worker_init_fn=seed_dataset),
        DataLoader(Noisy(np.random.mtrand._rand), num_workers=2),
        DataLoader(Noisy(random.SystemRandom()), num_workers=2),
        DataLoader(Reseeding(random.Random(0)), num_workers=2),
        DataLoader(PerWorker(np.random.default_rng(0)), num_workers=2),
        DataLoader(Unused(np.random.default_rng(0)), num_workers=2),
        DataLoader(Unused(None), num_workers=2, shuffle=True, generator=torch.Generator()),
    ],
)
def test_generators_that_workers_do_not_repeat_are_left_alone(loader: DataLoader[Any]) -> None:
    assert ids(loader) == []


def test_functions_are_looked_into() -> None:
    rng = random.Random(0)

    def noisy(samples: list[Any]) -> Any:
        return [sample + rng.random() for sample in samples]

    def by_index(samples: list[Any]) -> Any:
        rng.seed(samples[0])
        return [sample + rng.random() for sample in samples]

    (found,) = findings(DataLoader(Unused(None), num_workers=2, collate_fn=noisy))
    assert found.id == "generator-before-fork"
    assert "train_loader.collate_fn.rng" in found.fix
    assert ids(DataLoader(Unused(None), num_workers=2, collate_fn=by_index)) == []


class Arguments:
    def __init__(self) -> None:
        self.seed = 7


args = Arguments()


def constant(worker_id: int) -> None:
    np.random.seed(SEED)


def from_arguments(worker_id: int) -> None:
    torch.set_num_threads(1)
    random.seed(args.seed + 1)


def by_worker(worker_id: int) -> None:
    np.random.seed(SEED + worker_id)


def from_torch(worker_id: int) -> None:
    seed = torch.initial_seed() % 2**32
    np.random.seed(seed)
    random.seed(seed)


def from_the_system(worker_id: int) -> None:
    np.random.seed(None)


def twice(worker_id: int) -> None:
    np.random.seed(SEED)
    np.random.seed(worker_id)


@pytest.mark.parametrize(
    ("init", "call"),
    [
        (constant, "constant() runs np.random.seed(SEED)"),
        (from_arguments, "from_arguments() runs random.seed(args.seed + 1)"),
        (lambda _: torch.manual_seed(0), "worker_init_fn runs torch.manual_seed(0)"),
    ],
)
def test_a_seed_that_is_the_same_in_every_worker_is_found(init: Any, call: str) -> None:
    found = findings(DataLoader(Unused(None), num_workers=2, worker_init_fn=init))
    assert [one.id for one in found] == ["worker-seeds-equal"]
    assert call in found[0].message


@pytest.mark.parametrize("init", [by_worker, from_torch, from_the_system, twice])
def test_seeds_that_differ_are_left_alone(init: Any) -> None:
    assert ids(DataLoader(Unused(None), num_workers=2, worker_init_fn=init)) == []


def test_a_seed_in_a_closure_is_known() -> None:
    seed = 3

    def init(worker_id: int) -> None:
        random.seed(seed)

    assert ids(DataLoader(Unused(None), num_workers=2, worker_init_fn=init)) == ["worker-seeds-equal"]
