"""A part's ways take turns; one that is missing or fails says so, and the others are measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from unstarve.benchmark import run_benchmark as rounds_module
from unstarve.benchmark.bench_plan import (
    Anew,
    BenchEntry,
    BenchPlan,
    Missing,
    PartPlan,
    Sizes,
    faster,
    ours,
    public,
    stock,
)
from unstarve.benchmark.run_benchmark import PARTS, Rounds, chosen
from unstarve.errors import UsageError
from unstarve.model import Bar, Extra, Kind, Part, Promise


class Loader:
    """Tells a recorder when it is iterated over, and takes its time by the recorder's clock."""

    engine = "views"

    def __init__(self, log: list[str], name: str, first: int = 0) -> None:
        self.log, self.name, self.first = log, name, first

    def __iter__(self) -> Iterator[int]:
        self.log.append(self.name)
        return iter([self.first, 1])


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Who was measured, in order; a way's name ends with what a batch takes it."""
    said: list[str] = []

    def timed(loader: Loader, *, least_s: float, skip: int) -> float:
        said.append(f"time {loader.name}")
        return float(loader.name.rpartition(" ")[2])

    monkeypatch.setattr(rounds_module, "time_per_batch", timed)
    monkeypatch.setattr(rounds_module, "extra_memory", lambda *_: Extra(1_000_000, 1_500_000, 100_000))
    return said


TWO_ROUNDS = BenchPlan(seeds=(1, 2))


def measured(entries: tuple[BenchEntry, ...], plan: BenchPlan = TWO_ROUNDS, **options: Any) -> Part:
    part = PartPlan("x", "some", lambda sizes: "title", lambda sizes, folder: "data", entries, **options)
    rounds = Rounds(part, plan, Path(), lambda what: None)
    rounds.run()
    return rounds.result()


def fails(error: Exception) -> Callable[[Any], Any]:
    def make(_: Any) -> Any:
        raise error

    return make


def test_all_ways_are_measured_in_every_round(log: list[str]) -> None:
    part = measured(
        (
            stock(lambda _: Loader(log, "stock 8.0")),
            ours("fast", lambda _: Loader(log, "fast 2.0"), faster(3), faster(5)),
            BenchEntry("other", Kind.PEER, lambda _: Loader(log, "other 4.0", first=9)),
        )
    )
    timed = [word for word in log if word.startswith("time")]
    assert timed == ["time stock 8.0", "time fast 2.0", "time other 4.0"] * 2
    assert [way.batch_s for way in part.ways] == [(8.0, 8.0), (2.0, 2.0), (4.0, 4.0)]
    assert [way.speedup for way in part.ways] == [1.0, 4.0, 2.0]
    assert [(one.measured, one.met) for one in part.ways[1].checked] == [(4.0, True), (4.0, False)]
    assert part.ways[1].engine == "views"


def test_cpu_time_is_measured_where_samples_are_counted(
    log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds_module, "cpu_per_batch", lambda loader: 0.5)
    ways = (stock(lambda _: Loader(log, "stock 8.0")), ours("fast", lambda _: Loader(log, "fast 2.0")))
    counted = measured(ways, batch_samples=lambda sizes: sizes.jpeg_batch)
    assert (counted.batch_samples, [way.cpu_s for way in counted.ways]) == (32, [0.5, 0.5])
    other = measured(ways)
    assert (other.batch_samples, [way.cpu_s for way in other.ways]) == (None, [None, None])


def test_in_pairs_stock_and_each_way_take_turns_and_the_usual_ratio_counts(
    log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []

    def timed(loader: Loader, **_: object) -> float:
        taken.append(loader.name)
        disturbed = len(taken) == 5
        return (6.0 if loader.name == "stock" else 2.0) * (50 if disturbed else 1)

    monkeypatch.setattr(rounds_module, "time_per_batch", timed)
    entries = (
        stock(lambda _: Loader(log, "stock")),
        ours("a", lambda _: Loader(log, "a"), same_batches=False),
    )
    part = measured(entries, BenchPlan(seeds=(1,)), pairs=3)
    assert taken == ["stock", "stock", "a", "a", "stock", "stock", "a"]
    assert part.ways[0].batch_s == (6.0,)
    assert part.ways[1].batch_s == (2.0, 2.0, 2.0)
    assert part.ways[1].speedup == 3.0


def test_what_cannot_be_measured_says_why_and_the_others_go_on(log: list[str]) -> None:
    part = measured(
        (
            stock(lambda _: Loader(log, "stock 8.0")),
            ours("absent", fails(Missing("not available"))),
            ours("broken", fails(ValueError("no such thing"))),
            ours("wrong", lambda _: Loader(log, "wrong 1.0", first=5)),
            ours("fine", lambda _: Loader(log, "fine 1.0")),
        )
    )
    assert [way.missing for way in part.ways] == [
        None,
        "not available",
        "failed: ValueError: no such thing",
        "its batches differ from stock's",
        None,
    ]
    assert part.ways[4].speedup == 8.0


def test_without_data_or_stock_nothing_is_claimed(log: list[str]) -> None:
    entries = (
        stock(fails(OSError("disk full"))),
        ours("fine", lambda _: Loader(log, "fine 1.0"), same_batches=False),
    )
    assert [way.missing for way in measured(entries).ways] == [
        "failed: OSError: disk full",
        "stock was not measured",
    ]
    part = PartPlan("x", "some", lambda sizes: "", fails(Missing("kept in memory")), entries)
    rounds = Rounds(
        replace(part, prepare=lambda sizes, folder: fails(Missing("no disk"))(0)), BenchPlan(), Path(), print
    )
    rounds.run()
    assert [way.missing for way in rounds.result().ways] == ["no disk", "no disk"]


def test_the_result_may_be_asked_for_at_any_time(log: list[str]) -> None:
    def stopped(what: str) -> None:
        if "round 2" in what:
            raise KeyboardInterrupt

    part = PartPlan("x", "some", lambda s: "", lambda s, f: 0, (stock(lambda _: Loader(log, "stock 8.0")),))
    rounds = Rounds(part, BenchPlan(seeds=(1, 2)), Path(), stopped)
    assert rounds.result().ways[0].missing == "not measured yet"
    with pytest.raises(KeyboardInterrupt):
        rounds.run()
    assert rounds.result().ways[0].batch_s == (8.0,)


@pytest.mark.parametrize(
    ("bar", "found", "met"),
    [
        (Bar(Promise.EXTRA_BYTES, 750_000), 600_000, True),
        (Bar(Promise.EXTRA_BYTES, 500_000), 600_000, False),
        (Bar(Promise.OVER_LIMIT, 0.15), pytest.approx(0.1), True),
        (Bar(Promise.OVER_LIMIT, 0.05), pytest.approx(0.1), False),
        (Bar(Promise.CACHED_SHARE, 0.01), None, None),
    ],
)
def test_every_kind_of_bar_is_checked(log: list[str], bar: Bar, found: Any, met: bool | None) -> None:
    entries = (
        stock(lambda _: Loader(log, "stock 8.0")),
        ours("fine", lambda _: Loader(log, "fine 1.1"), bar),
        BenchEntry("limit", Kind.LIMIT, lambda _: Loader(log, "limit 1.0")),
    )
    (checked,) = measured(entries, memory=True).ways[1].checked
    assert (checked.measured, checked.met) == (found, met)


def test_a_way_is_compared_with_the_limit_that_it_names(log: list[str]) -> None:
    bar = Bar(Promise.OVER_LIMIT, 0.15)
    entries = (
        stock(lambda _: Loader(log, "stock 8.0")),
        ours("a", lambda _: Loader(log, "a 3.0"), bar, limit="second"),
        ours("b", lambda _: Loader(log, "b 3.0"), bar, limit="neither"),
        BenchEntry("first", Kind.LIMIT, lambda _: Loader(log, "first 1.0")),
        BenchEntry("second", Kind.LIMIT, lambda _: Loader(log, "second 2.0")),
    )
    ways = measured(entries).ways
    assert [way.checked[0].measured for way in ways[1:3]] == [0.5, None]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_the_limits_that_ways_name_are_there(part: PartPlan) -> None:
    limits = {entry.name for entry in part.entries if entry.kind is Kind.LIMIT}
    assert {entry.limit for entry in part.entries if entry.limit is not None} <= limits


def test_a_way_is_compared_with_its_rival_in_the_same_rounds(log: list[str]) -> None:
    part = measured(
        (
            stock(lambda _: Loader(log, "stock 4")),
            ours("torch's", lambda _: Loader(log, "torch's 3")),
            ours("ours", lambda _: Loader(log, "ours 2"), rival="torch's"),
            ours("like stock", lambda _: Loader(log, "like 2"), rival="torch.utils.data.DataLoader"),
            ours("alone", lambda _: Loader(log, "alone 1"), rival="nobody"),
        )
    )
    assert [way.over_rival for way in part.ways] == [None, None, 1.5, 2.0, None]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_the_rivals_that_ways_name_are_there(part: PartPlan) -> None:
    assert {way.rival for way in part.entries if way.rival} <= {way.name for way in part.entries}


def test_each_epoch_of_a_loader_made_anew_is_its_first() -> None:
    made: list[int] = []

    def make() -> list[int]:
        made.append(1)
        return [1, 2]

    assert [list(epoch) for epoch in [Anew(make)] * 2] == [[1, 2], [1, 2]]
    assert len(made) == 2


def test_other_sizes_are_not_judged(log: list[str]) -> None:
    entries = (
        stock(lambda _: Loader(log, "stock 8.0")),
        ours("a", lambda _: Loader(log, "a 1.0"), faster(2)),
    )
    (checked,) = measured(entries, BenchPlan(sizes=Sizes(rows=10))).ways[1].checked
    assert (checked.measured, checked.met) == (8.0, None)


def test_parts_are_chosen_by_letter_and_name() -> None:
    assert chosen(()) == PARTS
    assert [part.name for part in chosen(["c", "prefetch", "rows"])] == [
        "rows",
        "rows-in-order",
        "large-rows-in-order",
        "prefetch",
    ]
    with pytest.raises(UsageError, match="unknown part 'z'; choose from a, rows, b"):
        chosen(["z"])
    assert len({part.name for part in PARTS}) == len(PARTS)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_a_part_fits_80_columns_and_has_a_stock_to_compare_with(part: PartPlan) -> None:
    assert len(f"{part.letter} · {part.name}: {part.title(Sizes())}") <= 80
    assert [entry.kind for entry in part.entries].count(Kind.STOCK) == 1
    assert part.entries[0].kind is Kind.STOCK
    assert len({entry.name for entry in part.entries}) == len(part.entries)


def test_a_part_that_this_version_lacks_is_not_available() -> None:
    with pytest.raises(Missing, match="not available"):
        public("SomethingOfTomorrow")
    assert public("DataLoader").__name__ == "DataLoader"
