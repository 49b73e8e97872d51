"""Examples of a verb, declared next to it: its help, the man page and the docs show them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

_EXAMPLES: dict[Callable[..., Any], tuple[Example, ...]] = {}


@dataclass(frozen=True, slots=True)
class Example:
    """A command line that works as printed, and what it is for."""

    purpose: str
    line: str


def examples(*pairs: tuple[str, str]) -> Callable[[Function], Function]:
    """Declare a verb's examples: each is a purpose and a command line."""

    def declare(function: Function) -> Function:
        _EXAMPLES[function] = tuple(Example(purpose, line) for purpose, line in pairs)
        return function

    return declare


def examples_of(function: Callable[..., Any] | None) -> tuple[Example, ...]:
    """The examples that were declared for a verb's function."""
    return () if function is None else _EXAMPLES.get(inspect.unwrap(function), ())
