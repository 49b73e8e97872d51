"""The loader keeps up; the training loop's own Python after the step takes the time."""

from __future__ import annotations

import os
import socket
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from zoo.case import Case
from zoo.data import Fixed, Items, Stream, Words
from zoo.neighbours import REPLY, server
from zoo.truth import Truth
from zoo.work import Model, burn


def metrics(truth: Truth, workers: int) -> None:
    """A confusion matrix counted value by value."""
    step = Model(5)
    predictions = torch.randint(0, 10, (400,)).tolist()
    confusion: Counter[tuple[int, int]] = Counter()

    def count() -> None:
        for at, value in enumerate(predictions):
            confusion[value, at % 10] += 1

    data = Items(520, Words())
    for batch in truth.over(DataLoader(data, batch_size=8, num_workers=workers, collate_fn=list)):
        step(batch)
        burn(50, count)


def tracker(truth: Truth) -> None:
    """Every step's loss is sent to an experiment tracker, which takes its time to confirm."""
    step = Model(5)
    data = Stream(520, Words())
    with server(latency_ms=50) as port, socket.create_connection(("127.0.0.1", port)) as line:
        for batch in truth.over(DataLoader(data, batch_size=8, num_workers=1, collate_fn=list)):
            step(batch)
            line.sendall(b"?")
            line.recv(len(REPLY), socket.MSG_WAITALL)


def checkpoints(truth: Truth) -> None:
    """Weights written and synced after every step, until at least 30 ms have passed."""
    step = Model(5)
    weights = torch.randn(200_000).numpy().tobytes()

    def save(batch: Any) -> None:
        until = time.perf_counter() + 0.03
        while time.perf_counter() < until:
            with Path("weights.bin").open("wb") as file:
                file.write(weights)
                file.flush()
                os.fsync(file.fileno())

    for batch in truth.over(DataLoader(Items(640, Fixed()), batch_size=8)):
        step(batch)
        save(batch)


CASES = (
    Case("host-metrics", metrics, "fed", "host", {"workers": 0}, quick=True),
    Case("host-metrics-two-workers", metrics, "fed", "host", {"workers": 2}),
    Case("host-tracker", tracker, "fed", "host"),
    Case("host-checkpoints", checkpoints, "fed", "host"),
)
