"""Samples that keep a process waiting off the CPU for something that is not a disk."""

from __future__ import annotations

import multiprocessing
import os
import socket
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Lock

import torch
from torch.utils.data import DataLoader

from zoo.case import Case
from zoo.data import Items, Slow, Stream, fit
from zoo.neighbours import REPLY, server
from zoo.truth import Truth
from zoo.work import Model


@dataclass
class Request:
    """A sample is one request over a socket that every process opens for itself."""

    port: int
    _opened: dict[int, socket.socket] = field(default_factory=dict)

    def __call__(self, index: int) -> torch.Tensor:
        line = self._opened.get(os.getpid())
        if line is None:
            line = self._opened[os.getpid()] = socket.create_connection(("127.0.0.1", self.port))
        line.sendall(b"?")
        return torch.tensor(line.recv(len(REPLY), socket.MSG_WAITALL)[0])


@dataclass(frozen=True)
class Guarded:
    """A sample from a store that serves one reader at a time."""

    lock: Lock
    ms: float

    def __call__(self, index: int) -> torch.Tensor:
        with self.lock:
            time.sleep(self.ms / 1e3)
        return torch.tensor(index)


@dataclass(frozen=True)
class Piped:
    """A sample that another process hands over through a pipe."""

    source: Connection

    def __call__(self, index: int) -> torch.Tensor:
        return torch.tensor(self.source.recv())


def sleep(truth: Truth) -> None:
    """Latency in the training process itself."""
    fit(truth, DataLoader(Items(560, Slow(sleep_ms=4)), batch_size=8), Model(12))


def requests(truth: Truth) -> None:
    """Two workers, each with one request on its way."""
    with server(latency_ms=9) as port:
        fit(truth, DataLoader(Items(560, Request(port)), batch_size=8, num_workers=2), Model(10))


def spawned_stream(truth: Truth) -> None:
    """A slow stream in two spawned workers."""
    data = Stream(560, Slow(sleep_ms=9))
    loader = DataLoader(data, batch_size=8, num_workers=2, multiprocessing_context="spawn")
    fit(truth, loader, Model(10))


def lock(truth: Truth) -> None:
    """Three workers and one lock."""
    data = Items(560, Guarded(multiprocessing.Lock(), ms=5))
    fit(truth, DataLoader(data, batch_size=8, num_workers=3), Model(10))


def pipe(truth: Truth) -> None:
    """One worker, fed by a process of the script's own."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    producer = multiprocessing.get_context("fork").Process(target=produce, args=(theirs, 560), daemon=True)
    producer.start()
    theirs.close()
    fit(truth, DataLoader(Stream(560, Piped(ours)), batch_size=8, num_workers=1), Model(10))
    producer.join()


def produce(target: Connection, count: int) -> None:
    """A number every 6 ms."""
    for number in range(count):
        time.sleep(0.006)
        target.send(number)


CASES = (
    Case("remote-sleep", sleep, "starved", "remote", quick=True),
    Case("remote-requests", requests, "starved", "remote", quick=True),
    Case("remote-spawned-stream", spawned_stream, "starved", "remote"),
    Case("remote-lock", lock, "starved", "remote"),
    Case("remote-pipe", pipe, "starved", "remote"),
)
