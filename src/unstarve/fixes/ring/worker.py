"""What a worker process runs: torch's own loop, with its batches built and sent in slots."""

from __future__ import annotations

import inspect
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data._utils import collate

from unstarve.fixes.buffers import use_allocator
from unstarve.fixes.ring.outbox import Outbox
from unstarve.fixes.ring.queue import RingQueue


@dataclass(frozen=True)
class Place:
    """A worker's place in its crew.

    `link` leads to the training process; `in_flight` batches may be on their way at a time, besides those
    that the user holds.
    """

    link: socket.socket
    number: int
    in_flight: int


def run_worker(place: Place, loop: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Run torch's worker loop, which is given its own arguments, with the result queue sending in slots."""
    with place.link:
        queue: RingQueue = inspect.signature(loop).bind(*args, **kwargs).arguments["data_queue"]
        if queue.inbox is not None:
            queue.inbox.close()  # the training process's, which a forked worker inherits
        outbox = queue.outbox = Outbox(place.link, place.number, place.in_flight)
        use_allocator(outbox.allocate)
        _collate_into_slots(outbox)
        loop(*args, **kwargs)


def _collate_into_slots(outbox: Outbox) -> None:
    """Let `default_collate` stack tensors right where they will be sent from."""
    functions: dict[Any, Callable[..., Any]] = collate.default_collate_fn_map
    original = functions[torch.Tensor]
    if original is not collate.collate_tensor_fn:
        return  # the user's own

    def collate_tensors(batch: Any, *, collate_fn_map: Any = None) -> Any:
        first = batch[0]
        if type(first) is torch.Tensor and first.is_cpu and first.layout is torch.strided and first.numel():
            try:
                out = outbox.allocate((len(batch), *first.shape), first.dtype)
                return torch.stack(batch, 0, out=out)
            except Exception:  # what cannot be stacked is torch's to refuse, in its own words
                pass
        return original(batch, collate_fn_map=collate_fn_map)

    functions[torch.Tensor] = collate_tensors
