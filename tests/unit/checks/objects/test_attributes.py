"""The walk over everything that a dataset holds."""

from __future__ import annotations

import functools
import logging
from typing import Any

import numpy as np
import pytest

from unstarve.checks.objects.attributes import places, walk


class Box:
    def __init__(self, **parts: Any) -> None:
        vars(self).update(parts)


class Slotted:
    __slots__ = ("empty", "full")

    def __init__(self, full: Any) -> None:
        self.full = full


class Touchy:
    """Fails when anything but its stored attributes is used."""

    def __init__(self) -> None:
        self.stored = 1

    @property
    def computed(self) -> int:
        pytest.fail("a property was run")

    def __getattr__(self, name: str) -> Any:
        pytest.fail("__getattr__ was run")

    def __getitem__(self, index: int) -> Any:
        pytest.fail("__getitem__ was run")

    def __iter__(self) -> Any:
        pytest.fail("__iter__ was run")

    def __eq__(self, other: object) -> bool:
        pytest.fail("__eq__ was run")

    def __bool__(self) -> bool:
        raise AssertionError("__bool__ was run")

    __hash__ = None  # type: ignore[assignment]  # comparing is what this class forbids


class Proxy:
    @property
    def __class__(self) -> Any:
        pytest.fail("__class__ was asked for")

    def __getattribute__(self, name: str) -> Any:
        pytest.fail("__getattribute__ was run")


def paths(root: Any, **limits: int) -> list[str]:
    return [path for path, _ in walk(root, "data", **limits)]


def test_names_are_those_of_the_user() -> None:
    nested = Box(transform=Box(steps=[Box(rng="found")]), tables={"train": ("a", "b"), 3: 1.5})
    found = dict(walk(nested, "data"))
    assert found["data.transform.steps[0].rng"] == "found"
    assert found["data.tables['train'][1]"] == "b"
    assert found["data.tables[3]"] == 1.5


def test_slots_are_read_and_empty_ones_left_out() -> None:
    assert paths(Slotted(np.zeros(2))) == ["data", "data.full"]


def test_functions_show_what_they_hold() -> None:
    rng, limit = object(), object()

    def collate(samples: Any, most: Any = limit) -> Any:
        return rng, samples, most

    found = dict(walk(Box(f=functools.partial(collate, size=8), g=Box(h=3).__init__), "data"))
    assert found["data.f.func.rng"] is rng
    assert found["data.f.func.most"] is limit
    assert found["data.f.size"] == 8
    assert found["data.g.__self__.h"] == 3


def test_nothing_of_the_users_code_runs() -> None:
    assert paths(Box(inner=Touchy())) == ["data", "data.inner", "data.inner.stored"]
    assert paths(Box(proxy=Proxy(), plain=1)) == ["data", "data.plain"]


def test_cycles_end_and_each_object_comes_once() -> None:
    one = Box()
    one.me, one.again = one, [one]
    assert paths(one) == ["data", "data.again"]


def test_a_walk_has_limits() -> None:
    deep: Any = "end"
    for _ in range(50):
        deep = Box(next=deep)
    assert len(paths(deep, max_depth=5)) == 6
    assert len(paths([[i, str(i)] for i in range(1000)], most_items=10)) < 40
    assert len(paths([[i] for i in range(90)], most=50)) == 50


def test_loggers_and_modules_do_not_lead_out_of_the_dataset() -> None:
    assert paths(Box(log=logging.getLogger(), np=np)) == ["data", "data.log", "data.np"]


def test_a_container_belongs_to_the_object_that_holds_it() -> None:
    inner = Box(files=[["handle"]])
    place = next(one for one in places(Box(inner=inner), "data") if one.value == "handle")
    assert place.owner is inner
    assert place.attribute == "files"
