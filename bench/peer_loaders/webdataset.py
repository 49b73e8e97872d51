"""webdataset: samples in tar files, read one after the other and shuffled in a buffer."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader, default_collate

from unstarve.benchmark.bench_plan import BenchEntry
from unstarve.benchmark.optional_packages import installed
from unstarve.model import Kind

_SHUFFLED = 1000
"""Samples in the buffer."""


def _make(stored: Any) -> Any:
    wds = installed("webdataset")
    shard = stored.folder / "all.tar"
    if not shard.exists():
        with wds.TarWriter(str(shard)) as writer:
            for path in stored.paths:
                writer.write({"__key__": path.stem, "npy": torch.load(path).numpy()})
    samples = wds.WebDataset(str(shard), shardshuffle=False).shuffle(_SHUFFLED).decode().to_tuple("npy")
    return DataLoader(samples.batched(stored.batch_size, collation_fn=default_collate), batch_size=None)


WEBDATASET = BenchEntry("webdataset", Kind.PEER, _make)
