"""The smaller parts of tuning."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from sample_loaders import Stream as Endless
from unstarve.model import Change, LoaderSettings, Trial, Tuning
from unstarve.tune.explain import explain
from unstarve.tune.fitness import examine
from unstarve.tune.machine import this_machine
from unstarve.tune.room import Room, batch_bytes, on_accelerator, smaller
from unstarve.tune.stream import Seeds, Stream
from unstarve.tune.watch import Watch

MB = 1_000_000


def loader(**options: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.arange(8)), batch_size=2, **options)


# --- watching ---


def is_noticed(watch: Watch, wait_s: float, seconds: float, step_s: float = 0.05) -> bool:
    """Whether a search is due within so much training."""
    return any(watch.add(wait_s, step_s) and watch.look() for _ in range(int(seconds / step_s)))


def settled() -> Watch:
    watch = Watch()
    watch.settle()
    return watch


def test_steady_training_is_not_searched_again() -> None:
    assert not is_noticed(settled(), 0.01, 10_000)


@pytest.mark.parametrize("then_s", [0.001, 0.045])
def test_a_change_that_lasts_is_noticed_in_either_direction(then_s: float) -> None:
    watch = settled()
    assert not is_noticed(watch, 0.02, 60)
    assert is_noticed(watch, then_s, 60)


def test_a_change_that_passes_is_not() -> None:
    watch = settled()
    for _ in range(20):
        assert not is_noticed(watch, 0.02, 60)
        assert not is_noticed(watch, 0.045, 4)


def test_longer_steps_alone_are_no_reason() -> None:
    watch = settled()
    is_noticed(watch, 0.0, 60)
    assert not is_noticed(watch, 0.001, 600, step_s=0.5)


def test_a_validation_in_between_is_no_reason_and_no_measure() -> None:
    watch = settled()
    for _ in range(30):
        assert not is_noticed(watch, 0.02, 2)
        assert not watch.add(0.0, 60.0)
        assert not is_noticed(watch, 0.0, 0.2)  # batches that lie ready


def test_searches_become_rarer_on_a_machine_that_changes_all_the_time() -> None:
    watch, searches = Watch(), 0
    watch.settle()
    for n in range(600):
        if is_noticed(watch, 0.02 if n % 4 < 2 else 0.045, 6):
            searches += 1
            watch.settle()
    assert 2 <= searches <= 12  # in an hour


# --- memory ---


def test_a_setting_fits_by_its_workers_and_what_they_have_under_way() -> None:
    room = Room(free_bytes=1000 * MB, shm_free_bytes=300 * MB, batch_bytes=10 * MB, worker_bytes=50 * MB)
    assert room.fits(LoaderSettings(0))
    assert room.fits(LoaderSettings(8, 2))
    assert not room.fits(LoaderSettings(16, 2))
    assert not room.fits(LoaderSettings(8, 4))  # for want of shared memory
    assert Room(1000 * MB, None, batch_bytes=10 * MB, worker_bytes=0).fits(LoaderSettings(8, 8))


def test_what_a_batch_takes_is_found_in_any_nesting() -> None:
    batch = {"a": [torch.zeros(10), (torch.zeros(5, dtype=torch.uint8), "text")], "b": torch.zeros(2).numpy()}
    assert batch_bytes(batch) == 40 + 5 + 8
    assert not on_accelerator(batch)
    assert on_accelerator([{"x": torch.zeros(1, device="meta")}])


def test_running_out_of_memory_goes_back_step_by_step_to_the_users_own() -> None:
    own, settings = LoaderSettings(2, 2), LoaderSettings(16, 8)
    seen = [settings]
    while (settings := smaller(settings, own)) != seen[-1]:
        seen.append(settings)
    assert [one.in_flight for one in seen] == sorted({one.in_flight for one in seen}, reverse=True)
    assert seen[-1].in_flight <= own.in_flight
    assert smaller(LoaderSettings(4, 1), LoaderSettings(0)) == LoaderSettings(2, 1)
    assert smaller(LoaderSettings(1, 1), LoaderSettings(0)) == LoaderSettings(0)


# --- indices and seeds ---


def test_indices_given_back_are_the_next_again() -> None:
    stream = Stream(iter([[0, 1], [2, 3], [4]]))
    stream.look_ahead()
    stream.note()
    taken = [next(stream), next(stream)]
    stream.undo()
    assert [next(stream), next(stream)] == taken == [[0, 1], [2, 3]]
    stream.give_back(taken)
    assert list(stream) == [[0, 1], [2, 3], [4]]
    assert (stream.batches, stream.samples) == (3, 5)


def test_the_first_crew_has_torchs_seed_and_the_others_their_own() -> None:
    seeds = [next(numbers) for numbers in [Seeds(42)] for _ in range(4)]
    assert seeds[0] == 42
    assert len(set(seeds)) == 4
    again = Seeds(42)
    assert seeds == [next(again) for _ in range(4)]


# --- what may be tuned ---


def test_what_may_be_tuned_follows_from_the_loader() -> None:
    assert examine(loader(), deterministic=False).none
    assert not examine(loader(num_workers=1, worker_init_fn=print), deterministic=False).none
    assert not examine(loader(num_workers=1, timeout=5), deterministic=False).none
    exact = examine(loader(num_workers=1), deterministic=True)
    assert not exact.workers
    assert exact.why_not is None
    assert "no workers" in str(examine(loader(), deterministic=True).why_not)
    stream = examine(DataLoader(Endless(None), batch_size=2, num_workers=1), deterministic=False)
    assert stream.at_borders
    assert not stream.several
    assert not stream.none


def test_deterministic_asks_for_a_sampler_that_is_known() -> None:
    class Own(torch.utils.data.Sampler[int]):
        def __iter__(self) -> Any:
            return iter(range(8))

    fitness = examine(loader(num_workers=1, sampler=Own()), deterministic=True)
    assert "sampler" in str(fitness.why_not)


def test_the_ranks_of_a_node_share_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    alone = this_machine().cores
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1000")
    assert this_machine().cores == 1.0 <= alone
    assert this_machine(5).most_workers == 5


# --- what is told ---

TUNING = Tuning(
    where="train.py:41",
    before=LoaderSettings(0),
    chosen=LoaderSettings(8, 1),
    trials=(Trial(LoaderSettings(0), "measured", 40, 2.0, 320.4, 300.0, 345.0, 0.91, 10**8, 0),),
    gain=Change(4.2, 3.9, 4.5, shown=True),
    keep=False,
    reason="4.20× as fast as yours",
    settled=True,
    steps=300,
    seconds=9.5,
    notes=("a note",),
)


def test_a_tuning_survives_json() -> None:
    assert Tuning.from_json(json.loads(json.dumps(TUNING.to_json()))) == TUNING


def test_what_is_no_tuning_is_refused() -> None:
    with pytest.raises(ValueError, match="not a tuning"):
        Tuning.from_json({"schema": "unstarve.report/1"})
    with pytest.raises(ValueError, match="not a tuning of this version"):
        Tuning.from_json({"schema": "unstarve.tuning/1", "before": {}})


def test_a_tuning_in_words() -> None:
    assert explain(TUNING).splitlines() == [
        "8 workers, 1 batch ahead each, instead of no worker: 4.20× as fast as yours (3.90–4.50)",
        "  no worker: 320 samples/s (300–345), waiting 91%",
        "  a note",
    ]


def test_a_setting_that_was_measured_again_and_again_has_one_line() -> None:
    again = Trial(LoaderSettings(0), "measured", 40, 2.0, 340.4, 320.0, 365.0, 0.89, 10**8, 0)
    text = explain(replace(TUNING, trials=(*TUNING.trials, again)))
    assert "  no worker: 330 samples/s (310–355), waiting 90%, measured 2 times" in text.splitlines()
