"""A loader that tunes itself gives what torch's gives, however often its settings change."""

from __future__ import annotations

import gc
import hashlib
import itertools
import os
import pickle
import random
import re
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    get_worker_info,
)
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

import unstarve
from same_batches import assert_same, assert_same_epochs
from sample_datasets import Counted
from unstarve.errors import UsageError
from unstarve.model import LoaderSettings, Tuning
from unstarve.tune import live_search
from unstarve.tune.autotune import AutotunedLoader
from unstarve.tune.crews import StockCrew, make_crew
from unstarve.tune.live_search import WARM_UP
from unstarve.tune.memory_fit import MemoryGauge
from unstarve.tune.step_window import WindowPace
from unstarve.tune.tuner import ChangeWatch

HASTY = WindowPace(min_steps=1, min_s=0.0, max_s=0.0)

# Cores are few where tests run: torch warns about the user's own settings, as it does without us.
pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.usefixtures("no_workers_left"),
]


class Squares(Dataset[Any]):
    """Sample i is i and its square; no random draws."""

    def __init__(self, count: int = 100, broken: tuple[int, ...] = ()) -> None:
        self.count = count
        self.broken = broken

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        if index in self.broken:
            raise ValueError(f"sample {index} is damaged")
        return torch.tensor([index, index**2]), torch.tensor(index)


class Noisy(Squares):
    """A sample with random numbers of all three kinds in it."""

    def __getitem__(self, index: int) -> Any:
        return torch.rand(3) + random.random(), index, get_worker_info().seed  # type: ignore[union-attr]


class Deadly(Squares):
    """Three workers kill their process at a sample."""

    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        if info is not None and info.num_workers == 3 and index >= 24:
            os._exit(1)
        return super().__getitem__(index)


class HomeOnly(Squares):
    """Can be read where it was made only."""

    def __init__(self, count: int = 100) -> None:
        super().__init__(count)
        self.home = os.getpid()

    def __getitem__(self, index: int) -> Any:
        if os.getpid() != self.home:
            raise RuntimeError("cannot re-open the store in a worker")
        return super().__getitem__(index)


class Shards(IterableDataset[Any]):
    """Every worker gives its share."""

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        first, stride = (info.id, info.num_workers) if info else (0, 1)
        yield from range(first, 60, stride)


def tuned(loader: DataLoader[Any], **options: Any) -> Any:
    return AutotunedLoader(loader, {"pace": HASTY, **options})


def indices(batch: Any) -> list[int]:
    return [int(index) for index in batch[1]]


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 4, "shuffle": True},
        {"batch_size": 7, "drop_last": True},
        {"batch_size": None},
        {"batch_size": 4, "shuffle": True, "persistent_workers": True},
        {"batch_sampler": "own"},
    ],
    ids=str,
)
def test_batches_order_and_draws_are_torchs_while_settings_change(script: Any, options: Any) -> None:
    script((2, 2), (1, 1), (0, None), (3, 2), (3, 1), (2, 4))
    data = Squares()

    def make() -> DataLoader[Any]:
        given = dict(options)
        if "batch_sampler" in given:
            given["batch_sampler"] = BatchSampler(RandomSampler(data), 6, drop_last=False)
        return DataLoader(data, num_workers=2, **given)

    assert_same_epochs(make, lambda: tuned(make()))


def test_batches_order_and_draws_are_torchs_without_workers_of_the_users(script: Any) -> None:
    script((0, None), (2, 2), (1, 1))
    generator = torch.Generator()

    def make() -> DataLoader[Any]:
        return DataLoader(Squares(), batch_size=4, shuffle=True, generator=generator.manual_seed(3))

    assert_same_epochs(make, lambda: tuned(make()))


def test_unstarves_own_loader_tunes_itself_in_reused_memory(script: Any) -> None:
    script((2, 2), (1, 8), (0, None), (2, 4))
    data = Squares()
    assert_same_epochs(
        lambda: DataLoader(data, batch_size=4, shuffle=True, num_workers=2),
        lambda: unstarve.DataLoader(
            data, batch_size=4, shuffle=True, num_workers=2, autotune={"pace": HASTY}
        ),
    )


@pytest.mark.parametrize("persistent", [False, True])
def test_no_sample_is_lost_or_repeated_over_three_epochs_with_exceptions(
    script: Any, *, persistent: bool
) -> None:
    script((2, 2), (0, None), (1, 2), (3, 1))
    data = Squares(160, broken=(5, 6, 77, 150))

    def history(loader: Any) -> str:
        torch.manual_seed(5)
        digest = hashlib.sha256()
        for _ in range(3):
            iterator = iter(loader)
            while True:
                try:
                    digest.update(str(indices(next(iterator))).encode())
                except ValueError as error:
                    digest.update(str("damaged" in str(error)).encode())
                except StopIteration:
                    break
        return digest.hexdigest()

    def make() -> DataLoader[Any]:
        return DataLoader(data, batch_size=4, shuffle=True, num_workers=2, persistent_workers=persistent)

    assert history(tuned(make())) == history(make())


def test_workers_that_persist_go_with_a_loader_that_is_garbage_in_a_circle() -> None:
    loader = tuned(DataLoader(Squares(16), batch_size=4, num_workers=1, persistent_workers=True))
    for _ in loader:
        pass
    crews, circle = loader._tuner._crews, [loader]
    circle.append(circle)  # type: ignore[arg-type]
    gone = weakref.ref(loader)
    assert crews
    del loader, circle
    gc.collect()
    assert gone() is None
    assert not crews


def test_with_deterministic_random_numbers_in_workers_are_the_same_too() -> None:
    loader = DataLoader(Noisy(), batch_size=4, shuffle=True, num_workers=2)

    def batches(source: Any) -> list[Any]:
        torch.manual_seed(7)
        return [batch for _ in range(2) for batch in source]

    ours = tuned(loader, deterministic=True)
    assert_same(batches(ours), batches(loader))
    assert {trial.settings.num_workers for trial in ours.tuning.trials} == {2}


def test_an_epoch_broken_off_leaves_nothing_behind_and_the_next_is_whole(script: Any) -> None:
    script((2, 2), (3, 1), (1, 2))
    for persistent in (False, True):
        loader = tuned(DataLoader(Squares(), batch_size=4, num_workers=2, persistent_workers=persistent))
        for stop_after in (1, 9, 14):
            for _ in itertools.islice(loader, stop_after):
                pass
        assert [index for batch in loader for index in indices(batch)] == list(range(100))


def test_it_runs_with_spawned_workers(script: Any) -> None:
    script((1, 2), (0, None), (1, 4))  # the one worker waits meanwhile, and goes on
    loader = tuned(DataLoader(Counted(60), batch_size=2, num_workers=1, multiprocessing_context="spawn"))
    assert [int(index) for batch in loader for index in batch[1]] == list(range(60))
    assert {trial.settings.num_workers for trial in loader.tuning.trials} == {0, 1}


def test_workers_that_die_under_settings_of_ours_cost_nothing(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_often(self: Any, timeout: float = 0.1) -> Any:
        return _MultiProcessingDataLoaderIter._try_get_data(self, timeout)  # type: ignore[no-untyped-call]

    monkeypatch.setattr(StockCrew, "_try_get_data", look_often)
    script((2, 2), (3, 2))
    loader = tuned(DataLoader(Deadly(), batch_size=4, num_workers=2))
    assert [index for batch in loader for index in indices(batch)] == list(range(100))
    assert loader.tuning.settled
    assert loader.tuning.keep
    # One may die before the others are started.
    assert re.search("3 workers (failed|could not be started)", loader.explain())


def test_a_dataset_that_only_its_own_process_can_read_keeps_to_it(script: Any) -> None:
    script((0, None), (1, 2))
    loader = tuned(DataLoader(HomeOnly(), batch_size=4))
    assert [index for batch in loader for index in indices(batch)] == list(range(100))
    assert loader.tuning.chosen == LoaderSettings(0)
    assert "cannot re-open the store" in loader.tuning.reason


def test_settings_that_cannot_be_started_are_given_up(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    script((0, None), (2, 2))
    loader = tuned(DataLoader(Squares(), batch_size=4))

    def make_some(loader: Any, stream: Any, settings: LoaderSettings, seed: int, *, ring: bool) -> Any:
        if settings.num_workers == 0:
            return make_crew(loader, stream, settings, seed, ring=ring)
        next(stream)  # as if it had taken indices already
        raise OSError("no more processes")

    monkeypatch.setattr("unstarve.tune.tuned_epoch.make_crew", make_some)
    assert [index for batch in loader for index in indices(batch)] == list(range(100))
    assert loader.tuning.reason == "2 workers could not be started: no more processes"


def test_a_defect_of_the_tuner_does_not_cost_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_search.LiveSearch, "add", lambda *_: 1 / 0)
    loader = tuned(DataLoader(Squares(), batch_size=4))
    with pytest.warns(UserWarning, match="autotune stopped because of an internal error"):
        assert [index for batch in loader for index in indices(batch)] == list(range(100))


def test_an_iterable_dataset_changes_settings_between_epochs(script: Any) -> None:
    script((2, 2), (3, 2), (4, 1))
    loader = tuned(DataLoader(Shards(), batch_size=5, num_workers=2))
    counts = []
    for _ in range(8):
        iterator = iter(loader)
        seen = [int(index) for batch in iterator for index in batch]
        assert sorted(seen) == list(range(60))
        counts.append(iterator._num_workers)
    assert set(counts) == {2, 3, 4}


def test_short_epochs_are_measured_as_a_whole() -> None:
    told: list[Tuning] = []
    loader = unstarve.autotune(DataLoader(Squares(8), batch_size=4), on_change=told.append)
    while not loader.tuning.settled:
        assert [index for batch in loader for index in indices(batch)] == list(range(8))
    assert told[0].trials[0].steps == 6
    assert told[-1].settled


def test_two_iterators_at_once_do_not_mix() -> None:
    loader = tuned(DataLoader(Squares(), batch_size=4))
    pairs = list(zip(loader, loader, strict=True))
    assert [indices(one) for one, _ in pairs] == [indices(other) for _, other in pairs]


def test_it_settles_within_its_budget_and_says_so() -> None:
    loader = tuned(DataLoader(Squares(), batch_size=4), budget_steps=1)
    for _ in loader:
        pass
    assert loader.tuning.settled
    assert len(loader.tuning.trials) == 1
    assert loader.tuning.keep
    assert loader.explain().startswith("keep your settings (no worker): ")


def test_when_memory_runs_out_it_goes_back_to_what_the_user_had(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    script((2, 2), (3, 2))
    monkeypatch.setattr(MemoryGauge, "is_short", lambda self: True)
    loader = tuned(DataLoader(Squares(), batch_size=4, num_workers=2))
    assert [index for batch in loader for index in indices(batch)] == list(range(100))
    assert loader.tuning.reason == "memory is running out"
    assert loader.tuning.chosen.in_flight <= 4


def test_when_conditions_change_it_searches_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ChangeWatch, "add", lambda *_: True)
    monkeypatch.setattr(ChangeWatch, "has_changed", lambda _: True)
    loader = tuned(DataLoader(Squares(200), batch_size=4), max_workers=1)
    for _ in range(20):
        assert [index for batch in loader for index in indices(batch)] == list(range(200))
        if loader.tuning.rounds > 1:
            break
    assert loader.tuning.rounds > 1


def test_a_batch_that_fails_under_any_settings_is_not_held_against_ours(script: Any) -> None:
    script((0, None), (1, 2))
    first_of_a_worker = 4 * (WARM_UP + 3)
    loader = tuned(DataLoader(Squares(broken=(first_of_a_worker,)), batch_size=4))
    iterator, failures = iter(loader), 0
    while True:
        try:
            next(iterator)
        except ValueError:
            failures += 1
        except StopIteration:
            break
    assert failures == 1
    assert loader.tuning.rounds == 2
    assert not loader.tuning.settled
    assert {trial.settings.num_workers for trial in loader.tuning.trials} == {0, 1}


def test_in_all_else_it_is_the_loader() -> None:
    loader = DataLoader(Squares(), batch_size=4, num_workers=1)
    ours = unstarve.autotune(loader)
    assert isinstance(ours, DataLoader)
    assert len(ours) == 25
    assert ours.dataset is loader.dataset
    assert ours.sampler is loader.sampler
    ours.collate_fn = list
    assert loader.collate_fn is list
    with pytest.raises(UsageError, match="tuning"):
        ours.tuning = None
    assert repr(ours).startswith("autotune(")
    iterator = iter(ours)
    assert len(iterator) == 25
    assert len(iterator._workers) == 1
    with pytest.raises(NotImplementedError, match="pickled"):
        iterator.__reduce__()


def test_what_it_cannot_tune_it_leaves_alone() -> None:
    class Own(DataLoader[Any]):
        def __iter__(self) -> Any:
            return iter([1, 2])

    ours = unstarve.autotune(Own(Squares()))
    assert list(ours) == [1, 2]
    assert ours.explain() == "keep your settings (no worker): Own has its own way of iterating"
    gathered = unstarve.DataLoader(torch.arange(10), batch_size=2, shuffle=True, autotune=True)
    assert len(list(gathered)) == 5
    assert "'gather' makes batches without workers" in gathered.explain()


def test_what_makes_no_sense_is_refused() -> None:
    loader = DataLoader(Squares())
    with pytest.raises(UsageError, match="DataLoader, got list"):
        unstarve.autotune([1])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="max_workers must be > 0, got 0"):
        unstarve.autotune(loader, max_workers=0)
    with pytest.raises(UsageError, match='such as "8GB"'):
        unstarve.autotune(loader, memory_bytes="much")
    with pytest.raises(UsageError, match=r"arguments of unstarve\.autotune"):
        unstarve.DataLoader(Squares(), autotune={"workers": 3})


class Mine(unstarve.DataLoader[Any]):
    """A user's own subclass."""


def test_a_subclass_and_a_pickled_copy_are_loaders_of_ours() -> None:
    loader = Mine(Squares(8), batch_size=4, autotune={"pace": HASTY, "max_workers": 1})
    assert unstarve.DataLoader.__name__ == "DataLoader"
    assert isinstance(loader, unstarve.DataLoader)
    assert isinstance(loader, DataLoader)
    assert [index for batch in loader for index in indices(batch)] == list(range(8))
    assert loader.tuning is not None
    plain = unstarve.DataLoader(torch.arange(10), batch_size=2, copy=True)
    copied = pickle.loads(pickle.dumps(plain))
    assert type(copied) is unstarve.DataLoader
    assert (copied.engine, copied.tuning) == (plain.engine, None)
    assert_same(list(copied), list(plain))
