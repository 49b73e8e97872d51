"""Parts of unstarve that a loader of torch's is tried with: the same batches, or they are left out."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from torchvision_here import torchvision_here
from unstarve import TensorFileDataset
from unstarve.fixes.datasets.cached.cached_dataset import CachedDataset
from unstarve.tune.autotune import AutotunedLoader
from unstarve.tune.sample_cache import try_cache
from unstarve.tune.step_window import WindowPace
from unstarve.tune.tunability import tunability_of

HASTY = WindowPace(min_steps=1, min_s=0.0, max_s=0.0)

# Cores are few where tests run: torch warns about the user's own settings, as it does without us.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


class Numbers(Dataset[Any]):
    """Counts what is fetched from it in this process."""

    def __init__(self) -> None:
        self.fetched = 0

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        self.fetched += 1
        return {"x": torch.full((3,), index / 7), "name": f"number {index}", "y": index}


class Dropout(Numbers):
    def __getitem__(self, index: int) -> Any:
        return torch.rand(3)


class Augmented(Numbers):
    def __init__(self) -> None:
        super().__init__()
        self.random = np.random.default_rng(0)


class Restless(Numbers):
    def __getitem__(self, index: int) -> Any:
        self.fetched += 1
        return torch.tensor(self.fetched)


class Batching(Numbers):
    def __getitems__(self, indices: list[int]) -> Any:
        return [self[index] for index in indices]


class Flipped(Numbers):
    def __init__(self) -> None:
        super().__init__()
        self.transform = torchvision_here().transforms.RandomHorizontalFlip()


class Unreadable(Numbers):
    def __getitem__(self, index: int) -> Any:
        if index == 39:
            raise OSError("the last one is broken")
        return super().__getitem__(index)


def history(loader: Any, epochs: int = 6) -> tuple[list[str], bytes]:
    """The batches of each epoch, and the random state after them."""
    torch.manual_seed(5)
    seen = [hashlib.sha256(repr(list(map(plain, loader))).encode()).hexdigest() for _ in range(epochs)]
    return seen, torch.get_rng_state().numpy().tobytes()


def plain(batch: Any) -> Any:
    if isinstance(batch, dict):
        return [(key, plain(value)) for key, value in batch.items()]
    if isinstance(batch, (list, tuple)):
        return type(batch), [plain(one) for one in batch]
    return (batch.tolist(), batch.dtype) if isinstance(batch, torch.Tensor) else batch


def tuned(loader: DataLoader[Any]) -> Any:
    return AutotunedLoader(loader, {"pace": HASTY, "parts": True})


def tried(loader: Any) -> set[str]:
    return {trial.settings.part for trial in loader.tuning.trials}


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("collate", [None, list])
def test_batches_stay_the_same_while_samples_are_kept_now_and_then(
    script: Any, no_workers_left: None, workers: int, collate: Any
) -> None:
    own = (workers, 2 if workers else None)
    script(own, (workers, own[1], "cached"), (0, None, "cached"), (1, 2, "cached"))
    loader = DataLoader(Numbers(), batch_size=3, shuffle=True, num_workers=workers, collate_fn=collate)
    ours = tuned(loader)
    assert history(ours) == history(loader)
    assert tried(ours) == {"", "cached"}


def test_an_epoch_fills_the_cache_before_it_is_measured_and_then_nothing_is_fetched(script: Any) -> None:
    script((0, None), *[(0, None, "cached")] * 50)
    dataset = Numbers()
    loader = tuned(DataLoader(dataset, batch_size=10))
    fetched = []
    for _ in range(4):
        before = dataset.fetched
        list(loader)
        fetched.append(dataset.fetched - before)
        if len(fetched) == 2:
            assert tried(loader) == {""}
    assert fetched[2:] == [0, 0]
    assert tried(loader) == {"", "cached"}


@pytest.mark.parametrize("wrap", [lambda whole: whole, lambda whole: Subset(whole, [3, 1, 30, *range(9)])])
@pytest.mark.parametrize("workers", [0, 1])
def test_rows_in_memory_are_gathered_in_the_same_batches(
    script: Any, no_workers_left: None, wrap: Any, workers: int
) -> None:
    script((workers, 2 if workers else None), (0, None, "gather"))
    rows = wrap(TensorDataset(torch.arange(40), torch.randn(40, 3)))
    loader = DataLoader(rows, batch_size=3, shuffle=True, num_workers=workers)
    ours = tuned(loader)
    assert history(ours) == history(loader)
    assert tried(ours) == {"", "gather"}


def test_threads_read_a_dataset_of_unstarves_in_the_same_batches(tmp_path: Path, script: Any) -> None:
    for index in range(12):
        torch.save(torch.full((5,), float(index)), tmp_path / f"{index:02}.pt")
    script((0, None), (2, 2, "threads"), (1, 4, "threads"))
    loader = DataLoader(TensorFileDataset(sorted(tmp_path.glob("*.pt"))), batch_size=3, shuffle=True)
    ours = tuned(loader)
    assert history(ours) == history(loader)
    assert tried(ours) == {"", "threads"}


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        (Augmented, "random numbers of its own"),
        (Batching, "__getitems__"),
        (Flipped, "RandomHorizontalFlip must not do the same in every epoch"),
    ],
)
def test_samples_that_may_change_are_not_kept_and_that_is_said(dataset: Any, words: str) -> None:
    found = tunability_of(DataLoader(dataset()), parts=True)
    assert "cached" not in found.parts
    assert words in found.refused["cached"]


@pytest.mark.parametrize(
    ("dataset", "words"),
    [(Dropout, "draw random numbers"), (Restless, "not the same"), (Unreadable, "the last one is broken")],
)
def test_what_only_reading_shows_is_found_before_anything_is_kept(dataset: Any, words: str) -> None:
    loader = DataLoader(dataset())
    before = torch.get_rng_state()
    found = try_cache(loader)
    assert isinstance(found, str)
    assert words in found
    assert torch.equal(torch.get_rng_state(), before)


def test_a_sample_that_breaks_later_is_the_datasets_to_complain_about(script: Any) -> None:
    class Breaking(Numbers):
        def __getitem__(self, index: int) -> Any:
            if index == 13:
                raise LookupError("13 is missing")
            return super().__getitem__(index)

    script((0, None), *[(0, None, "cached")] * 50)
    loader = tuned(DataLoader(Breaking(), batch_size=1))
    for _ in range(3):
        epoch, seen = iter(loader), []
        with pytest.raises(LookupError, match="13 is missing"):
            seen.extend(next(epoch)["y"].item() for _ in range(40))
        seen.extend(batch["y"].item() for batch in epoch)
        assert seen == [index for index in range(40) if index != 13]
    assert "13 is missing" in " ".join(loader.tuning.notes)


def test_each_loader_has_the_parts_that_suit_it() -> None:
    rows = DataLoader(TensorDataset(torch.arange(4)))
    assert tunability_of(rows, parts=True).parts == {"ring", "gather"}
    assert tunability_of(DataLoader(Numbers()), parts=True).parts == {"ring", "cached"}
    assert tunability_of(DataLoader(CachedDataset(Numbers())), parts=True).parts == {"ring"}
    assert tunability_of(DataLoader(Numbers())).parts == set()
