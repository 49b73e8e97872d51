"""Whether workers that do not fork can receive the dataset and its functions, and which part prevents it."""

from __future__ import annotations

import collections
import functools
import pickle
import time
import types
from collections.abc import Iterator
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import torch

from unstarve import words
from unstarve.checks.objects.attributes import Place, held
from unstarve.checks.objects.loader_parts import report, roots, start_method
from unstarve.checks.objects.subject import Subject
from unstarve.model.finding import Finding

_DEEPEST = 12
_LONGEST_S = 5.0
_REDUCED_WHOLE = (functools.partial, types.MethodType, collections.deque, collections.OrderedDict)
"""Classes that pickle all they hold although they have a ``__reduce__``."""


class _TooSlowError(Exception):
    """Pickling is given up."""


class _Sink:
    """Counts what is written and keeps nothing."""

    def __init__(self) -> None:
        self.bytes = 0
        self._until_s = time.monotonic() + _LONGEST_S

    def write(self, data: Any) -> int:
        count = memoryview(data).nbytes
        self.bytes += count
        if time.monotonic() > self._until_s:
            raise _TooSlowError
        return count


class _Probe(ForkingPickler):
    """Pickles as for a new process, but neither copies tensors and arrays nor moves them to shared memory."""

    def __init__(self, sink: _Sink) -> None:
        super().__init__(sink, pickle.HIGHEST_PROTOCOL)
        self._sink = sink

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, (torch.Tensor, torch.UntypedStorage)):  # workers share them
            return int, ()
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            self._sink.bytes += value.nbytes
            return int, ()
        if type(value).__module__.split(".")[0] in ("multiprocessing", "_multiprocessing"):
            return int, ()  # locks, queues and values can be passed on when a process starts
        return NotImplemented


def pickled_bytes(value: Any) -> int | Exception:
    """How many bytes a new process would receive; the error if `value` cannot be pickled.

    After five seconds it is the bytes so far: of very large data, errors are not looked for to the end.
    """
    sink = _Sink()
    try:
        _Probe(sink).dump(value)
    except Exception as error:  # whatever the user's __reduce__ raises would end the worker, too
        return error
    return sink.bytes


def not_picklable(subject: Subject) -> Iterator[Finding]:
    """A dataset or function that cannot be sent to a worker under spawn or forkserver."""
    loader = subject.loader
    method = start_method(loader)
    if loader.num_workers == 0 or method == "fork":
        return
    for name, root in roots(subject):
        if not isinstance(pickled_bytes(root), Exception):
            continue
        for culprit in _culprits(Place(name, root, None, "", 0)):
            yield report(
                subject,
                "not-picklable",
                f"{culprit.path} is {_kind(culprit.value)}, which cannot be pickled for"
                f" {words.workers(loader.num_workers)} started by {method}.",
                _fix(culprit),
                harm=1.0,
            )


def _culprits(place: Place) -> list[Place]:
    """The innermost parts that fail alone, among the parts that are pickled."""
    parts = _pickled_parts(place) if place.depth < _DEEPEST else []
    failing = [part for part in parts if isinstance(pickled_bytes(part.value), Exception)]
    return [culprit for part in failing for culprit in _culprits(part)] or [place]


def _pickled_parts(place: Place) -> list[Place]:
    """Without those that a class of the user's leaves out."""
    kind = type(place.value)
    if isinstance(place.value, types.FunctionType):
        return []
    if "__reduce__" in vars(kind) or "__reduce_ex__" in vars(kind):
        return list(held(place, most_items=100)) if kind in _REDUCED_WHOLE else []
    if getattr(kind, "__getstate__", None) is getattr(object, "__getstate__", None):
        return list(held(place, most_items=100))
    try:
        state = place.value.__getstate__()
    except Exception:  # the user's own code: then the object itself is the culprit
        return []
    kept = state if isinstance(state, dict) else {}
    return [
        Place(f"{place.path}.{key}", item, place.value, key, place.depth + 1) for key, item in kept.items()
    ]


def _kind(value: Any) -> str:
    if isinstance(value, types.FunctionType):
        return "a lambda" if value.__name__ == "<lambda>" else f"a function inside {_outside(value)}"
    if "<locals>" in type(value).__qualname__:
        return f"of a class inside {_outside(type(value))}"
    module = type(value).__module__
    return f"a {'' if module == 'builtins' else f'{module}.'}{type(value).__name__}"


def _outside(inner: Any) -> str:
    return f"{inner.__qualname__.rpartition('.<locals>')[0]}()"


def _fix(place: Place) -> str:
    value, owner = place.value, place.owner
    if isinstance(value, types.FunctionType):
        name = "function" if value.__name__ == "<lambda>" else value.__name__
        return f"Define it at module level: def {name}(...), and pass {name} instead."
    if "<locals>" in type(value).__qualname__:
        return f"Define class {type(value).__name__} at module level."
    if owner is None or not place.attribute:
        return f"Make {place.path} inside the worker, or give its class a __getstate__."
    return (
        f"# in {type(owner).__name__}\n"
        "def __getstate__(self):\n"
        f'    return {{**self.__dict__, "{place.attribute}": None}}  # create it again on first use'
    )
