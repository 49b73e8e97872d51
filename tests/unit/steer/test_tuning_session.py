"""Which loader is tuned, when training may end, and what the launcher is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from unstarve.model import LoaderSettings, Maker, Place, Tuning
from unstarve.model.launch_settings import TuneSettings
from unstarve.model.tune_run import TunedProcess
from unstarve.steer.tuning_session import Ranks, TrackedLoader, TuningSession, read_progress, write_progress


class Loader:
    dataset = object()


class Script:
    """A training process: its session, its clock, and what the launcher was told last."""

    def __init__(self, settings: TuneSettings | None = None) -> None:
        self.now_s = 100.0
        self.told: list[TunedProcess] = []
        self.session = TuningSession(
            settings or TuneSettings(), self.told.append, 1, clock=lambda: self.now_s
        )
        self.loaders: list[Loader] = []

    def make(
        self, name: str, length: int | None = 10, line: int | None = None, *, shuffles: bool = False
    ) -> TrackedLoader:
        self.loaders.append(Loader())
        place = Place("/none/train.py", line or len(self.loaders), "main", name)
        return self.session.add(self.loaders[-1], "DataLoader", place, length, shuffles=shuffles)

    def tune(self, loader: TrackedLoader, *, settled: bool = False) -> None:
        """Begin an epoch of a training loader, and let tuning come so far."""
        assert self.session.begin_epoch(loader, gradients=True)
        self.session.update(loader, tuning(settled=settled))


def tuning(*, settled: bool) -> Tuning:
    own = LoaderSettings(0)
    return Tuning("train.py:1", own, own, (), None, True, "because", settled, 10, 1.0)


def test_the_training_loader_is_tuned_and_validation_is_left_alone() -> None:
    script = Script()
    train, val = script.make("train"), script.make("val")
    assert not script.session.begin_epoch(val, gradients=False)
    script.tune(train, settled=True)
    assert not script.session.begin_epoch(val, gradients=False)
    loaders = {one.name: one for one in script.session.snapshot().loaders}
    assert loaders["train"].tuning is not None
    assert loaders["train"].left_alone is None
    assert "iterated under no_grad" in str(loaders["val"].left_alone)


def test_the_only_loader_of_a_script_that_trains_nothing_is_tuned() -> None:
    script = Script()
    assert script.session.begin_epoch(script.make("test"), gradients=False)


def test_one_loader_is_tuned_after_the_other() -> None:
    script = Script()
    a, b = script.make("a"), script.make("b")
    script.tune(a)
    assert not script.session.begin_epoch(b, gradients=True)
    assert b.left_alone == "a was still being tuned"
    script.session.update(a, tuning(settled=True))
    assert script.session.begin_epoch(b, gradients=True)
    assert b.left_alone is None


def test_a_loader_that_is_gone_keeps_nobody_waiting() -> None:
    script = Script()
    a, b = script.make("a"), script.make("b")
    script.tune(a)
    del script.loaders[0]
    assert script.session.begin_epoch(b, gradients=True)


def test_training_ends_when_tuning_has_settled() -> None:
    script = Script()
    train = script.make("train")
    script.tune(train)
    assert not script.session.is_over(train)
    script.session.update(train, tuning(settled=True))
    assert script.session.is_over(train)
    assert script.session.ended_by == "settled"


def test_training_goes_on_while_a_loader_with_more_steps_is_yet_to_be_tuned() -> None:
    script = Script()
    statistics, train = script.make("statistics", length=5), script.make("train", length=500)
    script.tune(statistics, settled=True)
    assert not script.session.is_over(statistics)
    script.tune(train, settled=True)
    assert script.session.is_over(train)


def test_training_goes_on_until_each_training_loader_has_had_its_turn() -> None:
    script = Script()
    first, second = script.make("first"), script.make("second")
    script.tune(first)
    assert not script.session.begin_epoch(second, gradients=True)
    script.session.update(first, tuning(settled=True))
    assert not script.session.is_over(first)
    script.tune(second, settled=True)
    assert script.session.is_over(second)


def test_a_validation_loader_with_more_steps_keeps_nobody_waiting() -> None:
    script = Script()
    train, val = script.make("train", length=5), script.make("val", length=500)
    script.session.begin_epoch(val, gradients=False)
    script.tune(train, settled=True)
    assert script.session.is_over(train)


@pytest.mark.parametrize("settings", [TuneSettings(budget_s=60), TuneSettings(budget_steps=200)])
def test_training_ends_when_the_budget_is_spent(settings: TuneSettings) -> None:
    script = Script(settings)
    train = script.make("train")
    script.tune(train)
    script.now_s, train.steps = 159.0, 199
    assert not script.session.is_over(train)
    script.now_s, train.steps = 160.0, 200
    assert script.session.is_over(train)
    assert script.session.ended_by == "budget"


def test_a_loader_that_is_not_tuned_ends_nothing() -> None:
    script = Script(TuneSettings(budget_steps=1))
    val = script.make("val")
    val.steps = 9
    assert not script.session.is_over(val)


def test_ranks_that_train_together_end_with_the_same_step(tmp_path: Path) -> None:
    first, second = Script(), Script()
    for rank, script in enumerate((first, second)):
        script.session.rank, script.session.ranks = rank, Ranks(tmp_path)
    trains = [script.make("train") for script in (first, second)]
    for script, train in zip((first, second), trains, strict=True):
        script.tune(train)
    second.session.update(trains[1], tuning(settled=True))
    ended: list[list[int]] = [[], []]
    for step in range(100):
        if step == 30:
            first.session.update(trains[0], tuning(settled=True))
        for rank, script in enumerate((second, first)):
            train = trains[1 - rank]
            if script.session.is_over(train):
                ended[rank].append(step)
            train.steps += 1
    assert ended[0] == ended[1]
    assert ended[0][0] == 50
    assert first.session.ended_by == second.session.ended_by == "settled"


def test_ranks_on_several_machines_end_after_a_number_of_steps_only(tmp_path: Path) -> None:
    script = Script(TuneSettings(budget_steps=30, budget_s=1))
    script.session.ranks = Ranks(tmp_path, one_machine=False)
    train = script.make("train")
    script.tune(train, settled=True)
    script.now_s += 100
    ends = []
    for train.steps in range(100):
        if script.session.is_over(train):
            ends.append(train.steps)
    assert ends[0] == 50


def test_training_that_is_to_finish_is_not_ended() -> None:
    script = Script(TuneSettings(stop=False, budget_steps=1))
    train = script.make("train")
    script.tune(train, settled=True)
    train.steps = 9
    assert not script.session.is_over(train)


def test_loaders_of_several_datasets_made_at_one_place_are_counted() -> None:
    script = Script()
    train, _ = script.make("train", line=7), script.make("train", line=7)
    script.loaders[1].dataset = object()
    script.tune(train)
    assert script.told[-1].loaders[0].datasets == 2


def test_a_loader_made_anew_for_each_epoch_goes_on_where_the_last_one_ended() -> None:
    script = Script()
    first = script.make("train", line=7)
    script.tune(first)
    second = script.make("train", line=7)
    assert script.session.predecessor(second) is second  # both are there
    del script.loaders[0]
    assert script.session.predecessor(second) is first
    assert script.session.begin_epoch(first, gradients=True)
    assert script.session.loaders == [first]
    assert script.session.snapshot().loaders[0].datasets == 1


def test_a_loader_from_elsewhere_inherits_nothing() -> None:
    script = Script()
    script.tune(script.make("train", line=7))
    script.loaders.clear()
    other = script.make("train", line=8)
    assert script.session.predecessor(other) is other


def test_validation_that_is_waited_for_is_tuned_in_its_turn() -> None:
    script = Script()
    train, val = script.make("train"), script.make("val")
    script.tune(train, settled=True)
    script.session.begin_epoch(val, gradients=False)
    script.now_s, val.wait_s = script.now_s + 100, 9.0
    assert not script.session.begin_epoch(val, gradients=False)
    val.wait_s = 11.0
    assert script.session.begin_epoch(val, gradients=False)


def test_what_is_told_is_read_again_the_first_rank_first(tmp_path: Path) -> None:
    script = Script()
    script.tune(script.make("train"), settled=True)
    first = script.told[-1]
    second = TunedProcess(2, 1, first.loaders, 3.0, "budget")
    for process in (second, first, first):
        write_progress(tmp_path, process)
    assert read_progress(tmp_path) == [first, second]
    assert {path.name for path in tmp_path.iterdir()} == {"1.json", "2.json"}
    assert read_progress(tmp_path / "none") == []


def test_a_loader_without_a_name_has_a_number() -> None:
    script = Script()
    loader = Loader()
    assert script.session.add(loader, "DataLoader", None, None).name == "loader 1"


def test_loaders_of_one_line_are_told_apart_by_their_datasets() -> None:
    script = Script()
    train, val = script.make("made", line=7), script.make("made", line=7)
    script.loaders[1].dataset = object()
    train.place, val.place = (replace(train.place, dataset=name) for name in ("Images[50]", "Images[8]"))
    script.tune(train)
    script.session.begin_epoch(val, gradients=False)
    assert [one.name for one in script.session.snapshot().loaders] == [
        "made (Images[50])",
        "made (Images[8])",
    ]
    assert [one.place.nth for one in script.session.snapshot().loaders if one.place] == [None, None]


def test_loaders_of_equal_datasets_are_told_apart_by_their_order() -> None:
    script = Script()
    train, val = script.make("made", line=7), script.make("made", line=7)
    script.loaders[1].dataset = object()
    train.place = val.place = replace(train.place, dataset="Images[8]")
    script.session.begin_epoch(val, gradients=False)
    script.tune(train)
    assert [one.place.nth for one in script.session.snapshot().loaders if one.place] == [1, 2]
    assert val.name == "made (Images[8], 2nd)"


def test_the_only_loader_of_a_line_may_have_another_dataset_next_time() -> None:
    script = Script()
    train = script.make("train")
    train.place = replace(train.place, dataset="Images[50]")
    script.tune(train)
    (told,) = script.session.snapshot().loaders
    assert (told.name, told.place and told.place.dataset) == ("train", None)


def test_a_loader_that_a_framework_creates_for_each_use_goes_on_although_the_last_one_exists() -> None:
    script = Script()
    first, second = script.make("eval", line=7), script.make("eval", line=7)
    first.place = second.place = replace(first.place, maker=Maker("transformers"))
    script.tune(first)
    assert script.session.predecessor(second) is first
    assert script.session.loaders == [first]


def test_a_loader_that_a_framework_creates_again_with_other_arguments_is_the_same() -> None:
    script = Script()
    train = script.make("train", length=10)
    shard = Loader()
    assert script.session.replace(train, shard, 5) is train
    assert (train.loader(), train.length) == (shard, 5)


def test_a_loader_made_anew_goes_on_only_for_such_a_dataset_unless_they_vary_in_each_epoch() -> None:
    script = Script()
    inherited = []
    for length in range(6):
        loader = script.make("made", line=7)
        loader.place = replace(loader.place, dataset=f"Images[{length}]")
        inherited.append(script.session.predecessor(loader) is not loader)
        script.session.begin_epoch(loader, gradients=True)
        script.loaders.clear()
    assert inherited == [False] * 4 + [True] * 2


def test_a_check_of_validation_before_training_is_not_tuned() -> None:
    """As in Lightning, which creates the training loader after its sanity check."""
    script = Script()
    val = script.make("val")
    assert not script.session.begin_epoch(val, gradients=False, optimizer=True)
    val.wait_s = 50.0
    assert not script.session.begin_epoch(val, gradients=False, optimizer=True)
    train = script.make("train")
    script.tune(train)
    assert not script.session.begin_epoch(val, gradients=False, optimizer=True)
    script.session.update(train, tuning(settled=True))
    assert script.session.begin_epoch(val, gradients=False, optimizer=True)


def test_a_training_loader_takes_over_from_one_that_only_validates() -> None:
    script = Script()
    val = script.make("val")
    assert script.session.begin_epoch(val, gradients=False)
    script.session.update(val, tuning(settled=False))
    train, more = script.make("train"), script.make("more")
    script.tune(train)
    script.session.update(val, tuning(settled=True))  # an iterator of it that goes on
    assert (val.tuning, val.tuner) == (None, None)
    assert not script.session.begin_epoch(val, gradients=False)
    assert "iterated under no_grad" in str(val.left_alone)
    assert not script.session.begin_epoch(more, gradients=True)
    assert more.left_alone == "train was still being tuned"


def test_a_validation_loader_that_has_been_tuned_stays_so() -> None:
    script = Script()
    val = script.make("val")
    assert script.session.begin_epoch(val, gradients=False)
    script.session.update(val, tuning(settled=True))
    script.tune(script.make("train"))
    assert val.is_settled


def test_two_training_loaders_in_turns_are_both_tuned_before_training_ends() -> None:
    script = Script()
    real, noise = script.make("real"), script.make("noise")
    script.tune(real)
    assert not script.session.begin_epoch(noise, gradients=True)
    script.session.update(real, tuning(settled=True))
    assert script.session.begin_epoch(real, gradients=True)
    script.tune(noise)
    assert not script.session.is_over(real)
    script.session.update(noise, tuning(settled=True))
    assert script.session.is_over(real)


def test_a_loader_that_shuffles_is_waited_for_until_the_first_epoch_is_over() -> None:
    script = Script()
    first, second = script.make("first", shuffles=True), script.make("second", shuffles=True)
    script.tune(first, settled=True)
    first.steps = 9
    assert not script.session.is_over(first)
    script.tune(second, settled=True)
    assert script.session.is_over(second)


def test_a_loader_that_training_does_not_turn_to_is_named_in_the_end() -> None:
    script = Script()
    first, _, _ = script.make("first"), script.make("second", shuffles=True), script.make("validation")
    script.tune(first, settled=True)
    assert not script.session.is_over(first)
    assert script.session.begin_epoch(first, gradients=True)
    assert script.session.is_over(first)
    described = {one.name: one.left_alone for one in script.session.snapshot().loaders}
    missed = "not iterated before tuning was done (--finish tunes it, too)"
    assert described == {"first": None, "second": missed}


@pytest.mark.parametrize("length", [10_000, None])
def test_nobody_waits_for_the_end_of_a_long_epoch(length: int | None) -> None:
    script = Script()
    first, _ = script.make("first", length=length), script.make("second", length=20_000, shuffles=True)
    script.tune(first, settled=True)
    script.now_s, first.steps = script.now_s + 30, 500
    assert script.session.is_over(first)
