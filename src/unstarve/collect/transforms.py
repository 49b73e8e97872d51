"""Time single transforms in the containers of known libraries; elsewhere the stack sampler names functions.

The classes of the containers are wrapped, never their instances: a user's transform stays the object it was.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from unstarve.stack_levels import uncounted

_clock = time.perf_counter_ns

_containers: set[type] = set()
"""Classes of the containers that were found so far."""

spent: dict[str, list[float]] = {}
"""By class name of the transform: seconds and calls."""


Timed = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Takes a method and returns one that times the transforms it calls."""


def imported_containers() -> list[tuple[type, str, Timed]]:
    """Containers that this process has imported so far: class, method, and the wrapper for that method."""
    found = []
    for module_name, class_name, method, timed in _CONTAINERS:
        cls = getattr(sys.modules.get(module_name), class_name, None)
        if isinstance(cls, type) and method in vars(cls):
            found.append((cls, method, timed))
            if timed is not _single:
                _containers.add(cls)
    return found


@uncounted
def _call(transform: Any, *args: Any, **kwargs: Any) -> Any:
    if type(transform) in _containers:
        return transform(*args, **kwargs)  # its own transforms are timed: they would count twice
    begin = _clock()
    try:
        return transform(*args, **kwargs)
    finally:
        _note(type(transform).__name__, _clock() - begin)


def _note(name: str, taken_ns: int) -> None:
    entry = spent.setdefault(name, [0.0, 0])
    entry[0] += taken_ns / 1e9
    entry[1] += 1


def _compose(original: Callable[..., Any]) -> Callable[..., Any]:
    """``torchvision.transforms.Compose``: one value through all transforms."""

    def __call__(self: Any, img: Any) -> Any:
        for transform in self.transforms:
            img = _call(transform, img)
        return img

    return __call__


def _compose_v2(original: Callable[..., Any]) -> Callable[..., Any]:
    """``torchvision.transforms.v2.Compose``: one value or several through all transforms."""

    def forward(self: Any, *inputs: Any) -> Any:
        several = len(inputs) > 1
        outputs: Any = inputs if several else inputs[0]
        for transform in self.transforms:
            outputs = _call(transform, *inputs)
            inputs = outputs if several else (outputs,)
        return outputs

    return forward


def _single(original: Callable[..., Any]) -> Callable[..., Any]:
    """albumentations: each transform itself, because its containers do more than call them."""

    @uncounted
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        begin = _clock()
        try:
            return original(self, *args, **kwargs)
        finally:
            _note(type(self).__name__, _clock() - begin)

    return __call__


_CONTAINERS: tuple[tuple[str, str, str, Timed], ...] = (
    ("torchvision.transforms.transforms", "Compose", "__call__", _compose),
    ("torchvision.transforms.v2._container", "Compose", "forward", _compose_v2),
    ("albumentations.core.transforms_interface", "BasicTransform", "__call__", _single),
)
