"""Follow iterators of NVIDIA's DALI: they are loaders that deliver batches without torch's ``DataLoader``.

DALI's threads live in the training process and make batches ahead of time. The iterator is its own loader:
it lives for the whole training, ``iter()`` only resets it, and many loops never call ``iter()``. An epoch
therefore begins with ``iter()`` or else with the first batch, and ends when no batch is left.

DALI may be imported before torch or after it, and even import torch itself. Its base class lies in a module
that does not; the classes for torch are wrapped when they are defined.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from unstarve.collect.loader_origin import creation
from unstarve.collect.torch_iterator import TAP
from unstarve.launch import wrappers
from unstarve.launch.after_import import after_import
from unstarve.launch.patching import Patch, Settings, replace
from unstarve.launch.requested import records, subclasses, wrap_later_iterators
from unstarve.marks import SITE
from unstarve.stack_levels import uncounted

_BASE = "nvidia.dali.plugin.base_iterator"
_FOR_TORCH = "nvidia.dali.plugin.pytorch"
_CREATING = "_unstarve_creating"
"""Attribute of an iterator while it is created: DALI prepares its first batch then."""


def apply(_settings: Settings) -> None:
    """Wrap DALI's iterators: those that are defined, and those that will be."""
    after_import(_BASE, _wrap_all)


def _wrap_all(home: Any) -> None:
    base = home._DaliBaseIterator

    def wrap(cls: Any) -> None:
        if not any(one.__module__.startswith(_FOR_TORCH) for one in cls.__mro__):
            return  # it delivers tensors of another framework
        for method, wrapper in (("__init__", creating), ("__iter__", resetting), ("__next__", recorded_next)):
            if method in vars(cls) or (base in cls.__bases__ and hasattr(base, method)):
                replace("DALI", cls, method, wrapper)

    for cls in subclasses(base):
        wrap(cls)
    wrap_later_iterators("DALI", wrap, base)


# --- what stands in for DALI's methods -------------------------------------------------------------------


def creating(original: Callable[..., None]) -> Callable[..., None]:
    """Wrap ``__init__``: remember where the iterator comes from, and record no batch until it is complete."""

    @uncounted
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if _CREATING in self.__dict__:  # a subclass calls its parent's
            original(self, *args, **kwargs)
            return
        self.__dict__[_CREATING] = True
        try:
            original(self, *args, **kwargs)
        finally:
            del self.__dict__[_CREATING]
        wrappers.quietly(lambda: self.__dict__.setdefault(SITE, tuple(creation(self).origin())))

    return __init__


def resetting(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap ``__iter__``, which resets the iterator: an epoch begins, and the time until then is a wait."""
    beginning = wrappers.epoch_beginning(lambda iterator, _loader: original(iterator), _began, False)

    @uncounted
    def __iter__(self: Any) -> Any:
        return beginning(self, self)

    return __iter__


def recorded_next(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap ``__next__``: record the wait for a batch. Without ``iter()`` the first one begins an epoch."""

    # What DALI's threads compute until the batch is there is counted.
    counted = wrappers.probed(original)

    @uncounted
    def __next__(self: Any) -> Any:
        own = self.__dict__
        if _CREATING in own:
            return original(self)
        if TAP not in own:
            now_ns = time.perf_counter_ns()
            start = wrappers.EpochStart(now_ns, now_ns, 0, False, None, [])
            wrappers.quietly(lambda: _began(self, self, start))
        tap = own.get(TAP)
        if tap is None or tap.wait.busy:  # busy: a subclass calls its parent's
            return original(self)
        tap.note_gradients()
        try:
            return tap.next_batch(tap, counted, self)
        except BaseException:  # the epoch is over, or training is
            own.pop(TAP, None)
            raise

    return __next__


def _began(iterator: Any, _loader: Any, start: wrappers.EpochStart) -> None:
    from unstarve.launch.follow_iterator import tap_on  # needs all of torch

    before = iterator.__dict__.get(TAP)
    if before is not None and before.wait.index == 0:
        return  # iter(iter(loader)): nothing was delivered in between
    tap = tap_on(iterator, iterator)
    if tap is not None:
        tap.begin(iterator, start.begin_ns, start.ready_ns, inside=start.is_nested, mark=start.mark)


DALI = Patch(
    "DALI",
    (
        f"{_BASE}._DaliBaseIterator.__init_subclass__",
        *(
            f"{_FOR_TORCH}.{name}.{method}"
            for name in ("DALIGenericIterator", "DALIRaggedIterator")
            for method in ("__init__", "__iter__", "__next__")
        ),
        f"{_FOR_TORCH}.DALIClassificationIterator.__init__",
    ),
    "times every wait for a batch of NVIDIA's DALI, as `iterators` does; also wraps what the user derives",
    apply,
    records,
)
