"""`unstarve.watch`: let unstarve see batches that do not come from a ``DataLoader``."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, ParamSpec, TypeVar, overload

import torch

from unstarve.collect.fetching import FetchProbe
from unstarve.collect.loader_origin import creation
from unstarve.collect.recorder import Recorder, recorder
from unstarve.collect.tap import Tap
from unstarve.collect.watched import Watched
from unstarve.stack_levels import uncounted

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


@overload
def watch(batches: Callable[P, R], name: str | None = None) -> Callable[P, R]: ...
@overload
def watch(batches: Iterable[T], name: str | None = None) -> Iterable[T]: ...
def watch(batches: Any, name: str | None = None) -> Any:
    """Let `unstarve run` see a loader that is not a ``torch.utils.data.DataLoader``.

    Wrap what the training loop iterates: ``for batch in unstarve.watch(stream): …``. Or wrap the function
    that returns its batches: ``get_batch = unstarve.watch(get_batch)``, or ``@unstarve.watch`` above a
    function or method; each call is one batch, and calls without gradients are listed apart. Arguments,
    results and exceptions stay the same. Outside of `unstarve run` nothing is recorded.

    Raises `TypeError` for a generator function: watch the generator that it returns.
    """
    if isinstance(batches, Iterable) or not callable(batches):
        return Watched(batches, name)
    if inspect.isgeneratorfunction(batches):
        called = batches.__name__
        raise TypeError(f"{called} is a generator function; watch what it returns: watch({called}(…))")
    return _watched(batches, name or str(getattr(batches, "__name__", type(batches).__name__)))


class _Call(NamedTuple):
    """One call of a watched function."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class _Calls:
    """The calls of a watched function, with gradients or without: one endless epoch of a loader."""

    def __init__(self, function: Callable[..., Any], name: str, site: tuple[Any, ...]) -> None:
        self._function = function
        self._name = name
        self._site = site
        self._tap: Tap | None = None

    def tap(self, owner: Recorder) -> Tap:
        """The tap of this recording; a new one begins an epoch."""
        tap = self._tap
        if tap is None or not tap.is_of(owner):
            number = owner.loader_number(self, "function", self._site, self._name)
            tap = self._tap = Tap(owner, number, None, collated=True)
            tap.probe = FetchProbe(owner, number)
            tap.wait.fetch_by(tap.probe.work)
            now = time.perf_counter_ns()
            tap.begin(self, now, now)
        return tap

    @uncounted
    def advance(self, call: _Call) -> Any:
        """The batch that a call returns."""
        tap = self._tap
        if tap is None or tap.probe is None:  # another thread's call has just failed
            return self._function(*call.args, **call.kwargs)
        return tap.probe.call(self._function, call.args, call.kwargs)

    def end(self) -> None:
        """A call has raised: the next one begins an epoch."""
        self._tap = None


def _watched(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    site = tuple(creation().origin())
    # By grad mode: a loop calls the same function for training and, under no_grad, for validation.
    calls = (_Calls(function, f"{name}, no_grad", site), _Calls(function, name, site))

    @functools.wraps(function)
    @uncounted
    def watched(*args: Any, **kwargs: Any) -> Any:
        owner = None if torch.compiler.is_compiling() else recorder()
        if owner is None or not owner.active:
            return function(*args, **kwargs)
        mine = calls[torch.is_grad_enabled()]
        try:
            tap = mine.tap(owner)
        except Exception as error:  # a defect of ours must not cost the user the training
            owner.lose(f"calls of {name} could not be followed: {error!r}")
            return function(*args, **kwargs)
        try:
            tap.note_gradients()
            return tap.next_batch(tap, mine.advance, _Call(args, kwargs))
        except BaseException:  # Ctrl-C in the call ends the epoch as well
            mine.end()
            raise

    return watched
