"""Follow torchdata.nodes and Grain: their iterators deliver batches without torch's ``DataLoader``.

Recorded is what training iterates: a ``Loader`` of torchdata.nodes, a ``DataLoader`` or a dataset of Grain.
What the library iterates inside, in its threads and in its processes, is left alone. Iterators keep their
class and their state.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable
from typing import Any

from unstarve.collect.loader_origin import creation
from unstarve.collect.torch_iterator import TAP
from unstarve.collect.watched_source import makes_its_batches
from unstarve.launch import wrappers
from unstarve.launch.after_import import after_import
from unstarve.launch.patching import Patch, Settings, is_replaced, replace
from unstarve.launch.requested import records, subclasses, wrap_later_iterators
from unstarve.marks import SITE
from unstarve.stack_levels import uncounted

_NODES = "torchdata.nodes.loader"
_GRAIN_LOADER = "grain._src.python.data_loader"
_GRAIN_DATASET = "grain._src.python.dataset.dataset"


def apply_nodes(_settings: Settings) -> None:
    """Wrap the loader of torchdata.nodes, now or when it is imported."""
    after_import(_NODES, lambda home: _wrap_loader("torchdata.nodes", home.Loader))


def apply_grain(_settings: Settings) -> None:
    """Wrap what users of Grain iterate, now or when it is imported."""
    after_import(_GRAIN_LOADER, lambda home: _wrap_loader("Grain", home.DataLoader))
    after_import(_GRAIN_DATASET, _wrap_datasets)


def _wrap_loader(patch: str, loader: Any) -> None:
    replace(patch, loader, "__init__", created)
    _wrap_iteration(patch, loader)


def _wrap_datasets(home: Any) -> None:
    for base in (home.MapDataset, home.IterDataset):
        for cls in (base, *subclasses(base)):
            _wrap_iteration("Grain", cls)
    wrap_later_iterators("Grain", lambda cls: _wrap_iteration("Grain", cls), home.IterDataset)


def _wrap_iteration(patch: str, cls: Any) -> None:
    if "__iter__" in vars(cls):
        replace(patch, cls, "__iter__", lambda original: iterating(patch, original))


def created(original: Callable[..., None]) -> Callable[..., None]:
    """Wrap ``__init__`` of a loader: remember where it comes from."""

    @uncounted
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        wrappers.quietly(lambda: self.__dict__.setdefault(SITE, tuple(creation(self).origin())))

    return __init__


def iterating(patch: str, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap ``__iter__``: an epoch begins, and the waits for the iterator's batches are recorded."""
    library = patch.lower() + "."

    def make(loader: Any, made: list[Any]) -> None:
        made.append(original(loader))

    def began(loader: Any, made: list[Any], start: wrappers.EpochStart) -> None:
        if not start.is_nested:
            _begin(patch, made[0], loader, start)

    beginning = wrappers.epoch_beginning(make, began, False)

    @uncounted
    def __iter__(self: Any) -> Any:
        asked_by = str(sys._getframe(1).f_globals.get("__name__"))
        if asked_by.startswith(library) or multiprocessing.current_process().daemon:
            return original(self)
        made: list[Any] = []
        beginning(self, made)
        return made[0]

    return __iter__


def recorded_next(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap ``__next__``: record the wait for a batch, of an iterator that training asked for."""
    counted = wrappers.probed(original)

    @uncounted
    def __next__(self: Any) -> Any:
        tap = self.__dict__.get(TAP)
        if tap is None or tap.wait.busy or wrappers.is_beginning():  # busy: a class calls its parent's
            return original(self)
        tap.note_gradients()
        try:
            return tap.next_batch(tap, counted, self)
        except BaseException:  # the epoch is over, or training is
            self.__dict__.pop(TAP, None)
            raise

    return __next__


def _begin(patch: str, iterator: Any, loader: Any, start: wrappers.EpochStart) -> None:
    from unstarve.collect.counters import own_counters
    from unstarve.collect.fetching import FetchProbe  # needs all of torch
    from unstarve.collect.recorder import recorder
    from unstarve.collect.tap import Tap

    owner = recorder()
    if owner is None or not owner.active or own_counters().depth:  # inside of a loader that is recorded
        return
    before = iterator.__dict__.get(TAP)
    if before is not None and before.is_of(owner) and before.wait.index == 0:
        return  # asked for twice: nothing was delivered in between
    cls = type(iterator)
    if not is_replaced(patch, cls.__next__):
        replace(patch, cls, "__next__", recorded_next)
    site = loader.__dict__.get(SITE) or tuple(creation(loader).origin())
    number = owner.loader_number(loader, type(loader).__name__, site, None)
    tap = iterator.__dict__[TAP] = Tap(owner, number, None, collated=True)
    if makes_its_batches(loader):
        tap.probe = FetchProbe(owner, number)
        tap.wait.fetch_by(tap.probe.work)
    tap.begin(loader, start.begin_ns, start.ready_ns, mark=start.mark)


NODES = Patch(
    "torchdata.nodes",
    (f"{_NODES}.Loader.__init__", f"{_NODES}.Loader.__iter__", f"{_NODES}.LoaderIterator.__next__"),
    "times every wait for a batch of torchdata.nodes, as `iterators` does",
    apply_nodes,
    records,
)
GRAIN = Patch(
    "Grain",
    (
        f"{_GRAIN_LOADER}.DataLoader.__init__",
        f"{_GRAIN_LOADER}.DataLoader.__iter__",
        f"{_GRAIN_DATASET}.MapDataset.__iter__",
        f"{_GRAIN_DATASET}.IterDataset.__init_subclass__",
    ),
    "times every wait for a batch of Grain; also wraps ``__next__`` of the iterators that it returns",
    apply_grain,
    records,
)
