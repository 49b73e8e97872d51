"""`to_device`: batches that are on the device when training asks for them.

On a GPU, copies run on a stream beside the one that trains, from page-locked memory, while the step before
still computes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader

from unstarve.errors import UsageError
from unstarve.fixes.memory.device_batches import map_tensors, pinned, use_on_this_stream
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
    in page-locked memory is first put there, and a second stream copies it beside the training.

    `ahead` batches are fetched before training asks for them, so that a copy is over when it does. By default
    it is 1 for a `DataLoader` with workers, whose random numbers do not depend on when it is asked, and 0
    for all other loaders.

    The result has the loader's length and attributes. Raises UsageError for what cannot be iterated over and
    for an unknown device.
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
            has_workers = isinstance(loader, DataLoader) and loader.num_workers > 0
            ahead = _MADE_ELSEWHERE if has_workers else 0
        if ahead < 0:
            raise UsageError(f"ahead must be >= 0, got {ahead}")
        vars(self).update(dataloader=loader, device=target, ahead=ahead)

    def __iter__(self) -> Iterator[Any]:
        move = _begin_copy(self.device) if self.device.type == "cuda" else _moved_at_once(self.device)
        return batches_ahead(iter(self.dataloader), move, self.ahead)


def batches_ahead(batches: Iterator[Any], move: Move, ahead: int) -> Iterator[Any]:
    """Yield moved batches, with `ahead` more on their way. An exception comes after the batches before it."""
    coming: deque[Callable[[], Any]] = deque()
    failure: BaseException | None = None
    has_more = True
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


def _moved_at_once(device: torch.device) -> Move:
    def move(batch: Any) -> Callable[[], Any]:
        there = map_tensors(batch, lambda tensor: tensor.to(device))
        return lambda: there

    return move


def _begin_copy(device: torch.device) -> Move:
    stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call] # torch has no types for it

    def move(batch: Any) -> Callable[[], Any]:
        with torch.cuda.stream(stream):
            there = map_tensors(batch, lambda tensor: pinned(tensor).to(device, non_blocking=True))
            copied = stream.record_event()

        def finish() -> Any:
            torch.cuda.current_stream(device).wait_event(copied)
            use_on_this_stream(there)
            return there

        return finish

    return move
