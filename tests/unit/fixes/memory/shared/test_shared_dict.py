"""A shared dict reads like the dict it was made of."""

from __future__ import annotations

import copy
import pickle
import random
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path, PureWindowsPath
from typing import Any

import numpy as np
import pytest

from shared_sources import value_lists
from unstarve import share

KEY_KINDS = [
    "texts",
    "odd texts",
    "bytes",
    "integers",
    "integers beyond 64 bits",
    "floats",
    "booleans",
    "nothing",
    "mixed",
    "paths",
    "nested tuples",
    "uneven tuples",
]


def dict_of(kind: str, seed: int) -> dict[Any, Any]:
    lists = value_lists(seed)
    return dict(zip(lists[kind], lists["records"], strict=True))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KEY_KINDS)
def test_it_reads_like_the_dict(kind: str, seed: int) -> None:
    plain = dict_of(kind, seed)
    shared = share(plain)
    assert type(shared) is not dict
    assert isinstance(shared, Mapping)
    assert len(shared) == len(plain)
    assert bool(shared)
    assert list(shared) == list(plain) == list(shared.keys())
    assert list(shared.values()) == list(plain.values())
    assert list(shared.items()) == list(plain.items())
    assert list(reversed(shared)) == list(reversed(plain))
    assert all(key in shared and shared[key] == value == shared.get(key) for key, value in plain.items())
    assert [type(key) for key in shared] == [type(key) for key in plain]
    assert shared == plain
    assert plain == shared
    assert type(shared.copy()) is dict
    assert shared.copy() == plain
    assert shared | {"new": 1} == plain | {"new": 1}
    assert {"new": 1} | shared == {"new": 1} | plain


@pytest.mark.parametrize("kind", KEY_KINDS)
def test_keys_that_are_missing_are_missing(kind: str) -> None:
    plain = dict_of(kind, 4)
    left_out = random.Random(4).sample(list(plain), len(plain) // 2)
    shared = share({key: value for key, value in plain.items() if key not in left_out})
    for key in [*left_out, "no such key", object(), 3.25, ("a", object())]:
        assert key not in shared
        assert shared.get(key) is None
        assert shared.get(key, 7) == 7
        with pytest.raises(KeyError) as raised:
            shared[key]
        assert raised.value.args == (key,)


def test_equal_keys_of_other_types_find_the_value() -> None:
    assert share({1: "a", 2: "b"})[np.int64(2)] == share({1: "a", 2: "b"})[2.0] == "b"
    assert share({1.0: "a"})[True] == "a"
    assert share({"a": 1})[np.str_("a")] == 1
    assert share({Path("a/b"): 1})[Path("a") / "b"] == 1
    assert share({PureWindowsPath("A\\b"): 1})[PureWindowsPath("a/B")] == 1
    assert share({("a", 1): 1})[("a", 1.0)] == 1


def test_a_key_without_a_hash_is_the_dicts_error() -> None:
    with pytest.raises(TypeError, match="unhashable type: 'list'"):
        share({"a": 1})[[]]  # type: ignore[index] # which is the point


def test_a_defaultdict_gives_its_default_and_keeps_nothing() -> None:
    boxes = defaultdict(list, {"a.jpg": [1, 2], "b.jpg": [3]})
    shared = share(boxes)
    assert shared["a.jpg"] == [1, 2]
    assert shared["none.jpg"] == []
    assert "none.jpg" not in shared
    assert len(shared) == 2
    assert shared.get("none.jpg") is None
    assert shared == boxes
    assert type(shared.copy()) is defaultdict


WRITES: dict[str, Callable[[Any], Any]] = {
    "x['a'] = 1": lambda x: x.__setitem__("a", 1),
    "del x['a']": lambda x: x.__delitem__("a"),
    "x |= {}": lambda x: x.__ior__({}),
    "x.pop('a')": lambda x: x.pop("a"),
    "x.popitem()": lambda x: x.popitem(),
    "x.clear()": lambda x: x.clear(),
    "x.update(a=2)": lambda x: x.update(a=2),
    "x.setdefault('a', 2)": lambda x: x.setdefault("a", 2),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_write_says_what_to_do_instead(write: str) -> None:
    shared = share({"a": 1})
    with pytest.raises(TypeError, match="a shared dict is read-only: make the dict again and share it"):
        WRITES[write](shared)
    assert shared == {"a": 1}


def test_copies_share_and_pickles_hold_the_values() -> None:
    shared = share({"a": 1, "b": 2, "c": 3, "d": 4})
    assert copy.deepcopy([shared])[0] is shared is copy.copy(shared)
    assert pickle.loads(pickle.dumps(shared)) == shared
    assert repr(shared) == "<shared dict of 4: {'a': 1, 'b': 2, 'c': 3, …}>"
