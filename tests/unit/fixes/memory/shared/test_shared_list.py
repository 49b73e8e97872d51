"""A shared list reads like the list it was made of: same values, same types, same exceptions."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from shared_sources import value_lists
from unstarve import UsageError, share

SEEDS = range(3)
KINDS = list(value_lists(0))


def types_in(value: Any) -> Any:
    """The types of a value and of everything in it."""
    if isinstance(value, dict):
        return dict, [(types_in(key), types_in(part)) for key, part in value.items()]
    return (type(value), [*map(types_in, value)]) if isinstance(value, list | tuple) else type(value)


def outcome(read: Callable[[Any], Any], values: Any) -> Any:
    try:
        found = read(values)
    except Exception as error:  # the exception is part of the interface
        return type(error), str(error) if isinstance(error, IndexError | TypeError) else None
    return found, types_in(found)


def reads(values: list[Any], draw: random.Random) -> dict[str, Callable[[Any], Any]]:
    """Ways to read a list, by the expression that a user would write."""
    count = len(values)
    places = [0, -1, count - 1, -count, count, -count - 1, draw.randrange(count)]
    cuts = [
        slice(*(draw.choice([None, draw.randint(-count - 2, count + 2)]) for _ in "ab")) for _ in range(5)
    ]
    steps = [slice(None, None, step) for step in (2, -1, -3, 1)] + [slice(9, 2, -2), slice(5, 2)]
    one, found = values[draw.randrange(count)], values[count // 2]
    return {
        **{f"x[{place}]": lambda x, place=place: x[place] for place in places},
        **{f"x[{cut}]": lambda x, cut=cut: x[cut] for cut in cuts + steps},
        "x[numpy.int64(0)]": lambda x: x[np.int64(0)],
        "x[tensor(0)]": lambda x: x[torch.tensor(0)],
        "x[True]": lambda x: x[True - 1],
        "x['a']": lambda x: x["a"],
        "x[1.0]": lambda x: x[1.0],
        "len(x)": len,
        "bool(x)": bool,
        "list(x)": list,
        "list(enumerate(x))": lambda x: list(enumerate(x)),
        "list(reversed(x))": lambda x: list(reversed(x)),
        "one in x": lambda x: one in x,
        "'?' in x": lambda x: "?" in x,
        "x.index(found)": lambda x: x.index(found),
        "x.index(found, 1, -1)": lambda x: x.index(found, 1, -1),
        "x.count(one)": lambda x: x.count(one),
        "x.copy()": lambda x: x.copy(),
        "x + [1]": lambda x: x + [1],  # noqa: RUF005 - the operator is tested
        "[1] + x": lambda x: [1] + x,  # noqa: RUF005 - the operator is tested
        "x * 2": lambda x: x * 2,
        "2 * x": lambda x: 2 * x,
        "x == values": lambda x: x == values,
        "values == x": lambda x: values == x,
        "x == values[1:]": lambda x: x == values[1:],
        "x == tuple": lambda x: x == tuple(values),
        "x != values": lambda x: x != values,
    }


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_it_reads_like_the_list(kind: str, seed: int) -> None:
    values = value_lists(seed)[kind]
    shared = share(values)
    assert type(shared) is not list
    for expression, read in reads(values, random.Random(seed)).items():
        assert outcome(read, shared) == outcome(read, values), expression


@pytest.mark.parametrize("kind", KINDS)
def test_a_pickle_without_a_child_process_holds_the_values(kind: str) -> None:
    values = value_lists(9)[kind]
    again = pickle.loads(pickle.dumps(share(values)))
    assert again == values
    assert types_in(list(again)) == types_in(values)


def test_numpy_numbers_stay_numpy_numbers() -> None:
    values = [*np.arange(9, dtype=np.int32)]
    shared = share(values)
    assert shared == values
    assert {type(value) for value in [*shared, shared[3], *shared[2:4]]} == {np.int32}
    assert share([*np.array([1 + 2j])])[0] == 1 + 2j


def test_libraries_read_it_as_a_sequence() -> None:
    values = [*range(700)]
    shared = share(values)
    assert np.array_equal(np.array(shared), values)
    assert torch.equal(torch.tensor(shared), torch.tensor(values))
    assert random.Random(1).sample(shared, 5) == random.Random(1).sample(values, 5)
    assert sorted(shared, reverse=True) == values[::-1]


def test_a_tuple_stays_a_tuple() -> None:
    values = ("a", "b", "c")
    shared = share(values)
    assert shared == values
    assert shared != list(values)
    assert shared[1:] == ("b", "c")
    assert (*shared, "d") == ("a", "b", "c", "d")
    with pytest.raises(TypeError, match="a shared tuple is read-only"):
        shared[0] = "x"  # type: ignore[index] # which is the point


WRITES: dict[str, Callable[[Any], Any]] = {
    "x[0] = 1": lambda x: x.__setitem__(0, 1),
    "x[:] = []": lambda x: x.__setitem__(slice(None), []),
    "del x[0]": lambda x: x.__delitem__(0),
    "x += [1]": lambda x: x.__iadd__([1]),
    "x *= 2": lambda x: x.__imul__(2),
    "x.append(1)": lambda x: x.append(1),
    "x.extend([1])": lambda x: x.extend([1]),
    "x.insert(0, 1)": lambda x: x.insert(0, 1),
    "x.pop()": lambda x: x.pop(),
    "x.remove(1)": lambda x: x.remove(1),
    "x.clear()": lambda x: x.clear(),
    "x.sort(key=str)": lambda x: x.sort(key=str),
    "x.reverse()": lambda x: x.reverse(),
    "random.shuffle(x)": random.shuffle,
}


@pytest.mark.parametrize("write", WRITES)
def test_a_write_says_what_to_do_instead(write: str) -> None:
    shared = share([1, 2, 3])
    with pytest.raises(TypeError, match="a shared list is read-only: make the list again and share it"):
        WRITES[write](shared)
    assert shared == [1, 2, 3]


def test_a_value_that_was_read_is_the_readers_own() -> None:
    shared = share([{"box": [1.0, 2.0]}])
    shared[0]["box"][0] = 9.0
    assert shared[0] == {"box": [1.0, 2.0]}


def test_copies_share_the_memory() -> None:
    shared = share(["a", "b"])
    assert copy.copy(shared) is shared
    assert copy.deepcopy({"x": shared})["x"] is shared


def test_it_shows_its_first_values() -> None:
    assert repr(share([*range(2000)])) == "<shared list of 2,000: 0, 1, 2, …>"
    assert repr(share(("a",))) == "<shared tuple of 1: 'a'>"


def itself() -> list[Any]:
    made: list[Any] = [1]
    made.append(made)
    return made


@pytest.mark.parametrize(
    ("values", "held"),
    [
        ([object()], "object"),
        ([1, {2}], "set"),
        ([("a", torch.zeros(1))], "Tensor"),
        ([{"a": 1, "b": object()}], "object"),
        ([np.zeros(3)], "ndarray"),
        (itself(), "list"),
    ],
)
def test_other_objects_are_refused_by_name(values: list[Any], held: str) -> None:
    with pytest.raises(UsageError, match=f"this list cannot be shared: it holds a {held}"):
        share(values)
