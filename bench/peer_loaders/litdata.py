"""litdata: samples in chunks that are streamed."""

from __future__ import annotations

from typing import Any

import torch

from unstarve.benchmark.bench_plan import BenchEntry
from unstarve.benchmark.optional_packages import installed
from unstarve.model import Kind


def _make(stored: Any) -> Any:
    litdata = installed("litdata")
    chunks = stored.folder / "litdata"
    if not chunks.exists():
        writer = installed("litdata.streaming.writer").BinaryWriter(str(chunks), chunk_bytes="64MB")
        for number, path in enumerate(stored.paths):
            writer.add_item(number, torch.load(path))
        writer.done()
        writer.merge()
    samples = litdata.StreamingDataset(str(chunks), shuffle=True)
    return litdata.StreamingDataLoader(samples, batch_size=stored.batch_size)


LITDATA = BenchEntry("litdata", Kind.PEER, _make)
