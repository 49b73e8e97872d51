"""What a worker process runs: torch's own loop, with its batches built and sent in slots."""

from __future__ import annotations

import inspect
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.utils.data import default_collate

from unstarve.fixes.loader.ring.bell import Patience
from unstarve.fixes.loader.ring.collating import Collate
from unstarve.fixes.loader.ring.forms import Forms
from unstarve.fixes.loader.ring.outbox import Outbox
from unstarve.fixes.loader.ring.queue import RingQueue
from unstarve.fixes.memory.buffers import use_allocator


@dataclass(frozen=True)
class Place:
    """A worker's place in its crew.

    `link` leads to the training process; `in_flight` batches may be on their way at a time, besides those
    that the user holds. Where it `has_core`, every process of the crew has one to itself.
    """

    link: socket.socket
    number: int
    in_flight: int
    has_core: bool


def run_worker(place: Place, loop: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Run torch's worker loop, which is given its own arguments, with the result queue sending in slots."""
    with place.link:
        bound = inspect.signature(loop).bind(*args, **kwargs)
        given = bound.arguments
        queue: RingQueue = given["data_queue"]
        given["index_queue"].bell.patience = Patience() if place.has_core else None
        if queue.inbox is not None:
            queue.inbox.close()  # the training process's, which a forked worker inherits
        outbox = queue.outbox = Outbox(place.link, place.number, place.in_flight)
        use_allocator(outbox.allocate)
        collate = Collate(outbox.allocate)
        if given["collate_fn"] is default_collate:
            given["collate_fn"] = Forms(collate, outbox.take)
        loop(*bound.args, **bound.kwargs)
