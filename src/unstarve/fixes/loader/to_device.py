"""`to_device`: batches that are on the device when training asks for them.

On a GPU, copies run on a stream beside the one that trains, from page-locked memory, while the step before
still computes.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader

from unstarve.errors import UsageError
from unstarve.fixes.loader.data_loader import EngineLoader
from unstarve.fixes.memory.device_batches import is_plain, map_tensors, moved, pinned
from unstarve.loader_proxy import LoaderProxy, check_loader

_MADE_ELSEWHERE = 1
"""Batches fetched ahead from a loader with workers: the next one is copied during a step."""

Move = Callable[[Any], Callable[[], Any]]
"""Begins to move a batch; what it returns waits for the end and gives the batch on the device."""


def to_device(
    loader: Iterable[Any], device: torch.device | str | int, *, ahead: int | None = None
) -> DeviceLoader:
    """Return a loader of the same batches, on `device`.

    Each tensor of a batch is moved, however nested; what is not a tensor stays. On a GPU, a batch that is not
    in page-locked memory is first put there, and a second stream copies it beside the training. Subclasses of
    tensors, sparse tensors and objects with their own `to` are moved when training asks for the batch.

    `ahead` batches are fetched before training asks for them, so that a copy is over when it does. By default
    it is 1 on a GPU for a `DataLoader` with workers, whose random numbers do not depend on when it is asked,
    and 0 for all other loaders, and for torchdata's `StatefulDataLoader`.

    The result has the loader's length and attributes; `state_dict` raises UsageError while batches are ahead.
    Raises UsageError for what cannot be iterated over and for an unknown device.
    """
    return DeviceLoader(loader, device, ahead)


class DeviceLoader(LoaderProxy):
    """A loader whose batches are on a device; `to_device` makes it."""

    def __init__(self, loader: Iterable[Any], device: torch.device | str | int, ahead: int | None) -> None:
        check_loader(loader)
        try:
            target = torch.device(device)
        except (RuntimeError, TypeError) as error:
            raise UsageError(f"to_device needs a device, such as 'cuda', got {device!r}") from error
        if ahead is None:
            ahead = _MADE_ELSEWHERE if target.type == "cuda" and _may_be_asked_ahead(loader) else 0
        if ahead < 0:
            raise UsageError(f"ahead must be >= 0, got {ahead}")
        vars(self).update(dataloader=loader, device=target, ahead=ahead, _coming=())

    def __iter__(self) -> Iterator[Any]:
        cuda = self.device.type == "cuda"
        move = _begin_copy(_numbered(self.device)) if cuda else _moved_at_once(self.device)
        coming: deque[Callable[[], Any]] = deque()
        vars(self).update(_coming=coming)
        return batches_ahead(iter(self.dataloader), move, self.ahead, coming)

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        return functools.partial(self._state, found) if name == "state_dict" else found

    def _state(self, save: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if vars(self)["_coming"]:
            raise UsageError(
                "the loader has given a batch that training has not got yet: save its state between epochs,"
                " or use to_device(…, ahead=0)"
            )
        return save(*args, **kwargs)


def _may_be_asked_ahead(loader: Any) -> bool:
    """Whether a loader's batches and state stay the same if it is asked earlier; ours raises otherwise."""
    has_state = hasattr(loader, "state_dict") and not isinstance(loader, EngineLoader)
    return isinstance(loader, DataLoader) and loader.num_workers > 0 and not has_state


def batches_ahead(
    batches: Iterator[Any], move: Move, ahead: int, coming: deque[Callable[[], Any]]
) -> Iterator[Any]:
    """Yield moved batches, with `ahead` more on their way, which are in `coming` meanwhile.

    An exception comes after the batches before it.
    """
    failure: BaseException | None = None
    has_more = True
    try:
        while True:
            while has_more and len(coming) <= ahead:
                try:
                    coming.append(move(next(batches)))
                except StopIteration:
                    has_more = False
                except Exception as error:  # the loader's own, raised again below
                    has_more, failure = False, error
            if not coming:
                if failure is not None:
                    raise failure
                return
            yield coming.popleft()()
    finally:
        coming.clear()


def _moved_at_once(device: torch.device) -> Move:
    def move(batch: Any) -> Callable[[], Any]:
        there = map_tensors(batch, lambda item: moved(item, device))
        return lambda: there

    return move


def _numbered(device: torch.device) -> torch.device:
    return device if device.index is not None else torch.device("cuda", torch.cuda.current_device())


def _begin_copy(device: torch.device) -> Move:
    stream = _copy_stream(device)

    def begin(item: Any) -> Any:
        beside = is_plain(item) and item.is_cpu
        return pinned(item).to(device, non_blocking=True) if beside else item

    def move(batch: Any) -> Callable[[], Any]:
        with torch.cuda.stream(stream):
            there = map_tensors(batch, begin)
            copied = stream.record_event()

        def finish() -> Any:
            here = torch.cuda.current_stream(device)
            here.wait_event(copied)

            def end(item: Any) -> Any:
                if is_plain(item) and item.device == device:
                    item.record_stream(here)
                return moved(item, device)

            return map_tensors(there, end)

        return finish

    return move


@functools.cache
def _copy_stream(device: torch.device) -> Any:
    """Return the stream for copies to a device: one for all epochs, because torch keeps memory for each."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call] # torch has no types for it
