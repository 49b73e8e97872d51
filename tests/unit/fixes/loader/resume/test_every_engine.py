"""A resumed training gets the batches of an uninterrupted one, whichever engines ran before and after."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from torch.utils.data import Dataset

from resumed import COUNT, AnyEngine, Stop, assert_resumes, disturb, through_a_checkpoint, train
from same_batches import assert_same
from unstarve import DataLoader

BATCH = 4
BATCHES = -(-COUNT // BATCH)

LOADERS: dict[str, dict[str, Any]] = {
    "views": {"engine": "views"},
    "views, workers": {"engine": "views", "num_workers": 2},
    "gather": {"engine": "gather"},
    "gather, workers": {"engine": "gather", "num_workers": 1},
    "threads": {"engine": "threads"},
    "threads, workers": {"engine": "threads", "num_workers": 2},
    "ring": {"engine": "ring", "num_workers": 2},
    "stock": {"engine": "stock"},
    "stock, workers": {"engine": "stock", "num_workers": 2},
}
PERSISTENT = {
    f"{name}, persistent": {**arguments, "persistent_workers": True}
    for name, arguments in LOADERS.items()
    if arguments.get("num_workers")
}
TUNED = {
    "tuned": {"autotune": True},
    "tuned, workers": {"num_workers": 2, "autotune": {"deterministic": True}},
}
STOPS = [Stop(0, 2), Stop(1, 0), Stop(1, 3), Stop(1, BATCHES), Stop(1, None)]


class Plain(Dataset[Any]):
    """A dataset of which nothing is known, as a tuned loader needs it."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        return index


def make(arguments: dict[str, Any], dataset: Any = None, **more: Any) -> Any:
    in_order = arguments.get("engine") == "views"
    order = {} if in_order else {"shuffle": True}
    return DataLoader(dataset or AnyEngine(), batch_size=BATCH, **{**order, **arguments, **more})


def maker(name: str, **more: Any) -> Any:
    return functools.partial(make, {**LOADERS, **PERSISTENT}[name], **more)


@pytest.mark.parametrize("stop", STOPS, ids=str)
@pytest.mark.parametrize("name", [*LOADERS, *PERSISTENT])
def test_the_same_loader_goes_on_where_it_was(name: str, stop: Stop) -> None:
    loader = assert_resumes(maker(name), stop)
    assert loader.engine == name.split(",")[0]


@pytest.mark.parametrize("stop", STOPS, ids=str)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("ring", "stock"),
        ("stock", "ring"),
        ("gather", "stock, workers"),
        ("stock, workers", "gather"),
        ("threads, workers", "gather, workers"),
        ("threads", "ring"),
        ("ring", "threads"),
    ],
)
def test_another_engine_goes_on(before: str, after: str, stop: Stop) -> None:
    assert_resumes(maker(before), stop, maker(after))


@pytest.mark.parametrize("stop", STOPS, ids=str)
@pytest.mark.parametrize("after", ["stock", "gather, workers", "threads, workers"])
def test_a_loader_that_shuffles_nothing_may_go_on_with_views(after: str, stop: Stop) -> None:
    assert_resumes(maker(after, shuffle=False), stop, maker("views"))
    assert_resumes(maker("views"), stop, maker(after, shuffle=False))


@pytest.mark.parametrize("stop", STOPS, ids=str)
@pytest.mark.parametrize("workers", [0, 1])
def test_another_number_of_workers_gives_the_same_batches(workers: int, stop: Stop) -> None:
    engine = "ring" if workers else "stock"
    assert_resumes(maker("ring"), stop, maker("ring", engine=engine, num_workers=workers))


@pytest.mark.parametrize("stop", STOPS, ids=str)
@pytest.mark.parametrize(
    ("before", "after"),
    [("ring, persistent", "stock"), ("ring, persistent", "ring"), ("ring", "ring, persistent")],
)
def test_persistent_workers_may_come_or_go(before: str, after: str, stop: Stop) -> None:
    assert_resumes(maker(before), stop, maker(after))


@pytest.mark.parametrize("stop", STOPS, ids=str)
@pytest.mark.parametrize("name", [*TUNED])
def test_a_tuned_loader_goes_on(name: str, stop: Stop) -> None:
    tuned = functools.partial(make, TUNED[name], Plain())
    stock = functools.partial(make, {"engine": "stock"}, Plain())
    assert_resumes(tuned, stop)
    assert_resumes(tuned, stop, stock)
    assert_resumes(stock, stop, tuned)


@pytest.mark.parametrize("name", ["gather", "ring", "threads, workers"])
def test_a_resumed_training_can_be_interrupted_again(name: str) -> None:
    for second in (Stop(0, 1), Stop(0, 2), Stop(1, 2), Stop(0, None)):
        _assert_resumes_twice(maker(name), second)


def _assert_resumes_twice(make_loader: Any, second: Stop) -> None:
    disturb(11)
    whole, _ = train(make_loader(), 3)
    disturb(11)
    first, state = train(make_loader(), 3, Stop(0, 3))
    disturb()
    loader = make_loader()
    loader.load_state_dict(through_a_checkpoint(state))
    middle, state = train(loader, 3, second)
    disturb(5)
    loader = make_loader()
    loader.load_state_dict(through_a_checkpoint(state))
    last, _ = train(loader, 3)
    seen = [batch for part in (first, middle, last) for epoch in part for batch in epoch]
    assert_same(seen[: 3 * BATCHES], [batch for epoch in whole for batch in epoch])
