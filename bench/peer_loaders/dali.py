"""DALI: a pipeline of native operators, here on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from unstarve.benchmark.bench_plan import BenchEntry
from unstarve.benchmark.optional_packages import installed
from unstarve.model import Kind

_THREADS = 2


def _make(stored: Any) -> Any:
    dali = installed("nvidia.dali")
    fn, plugin = installed("nvidia.dali.fn"), installed("nvidia.dali.plugin.pytorch")
    folder = stored.folder / "npy"
    if not folder.exists():
        folder.mkdir()
        for path in stored.paths:
            np.save(folder / f"{path.stem}.npy", torch.load(path).numpy())

    pipeline = dali.Pipeline(batch_size=stored.batch_size, num_threads=_THREADS, device_id=None)
    with pipeline:
        samples = fn.readers.numpy(
            file_root=str(folder), file_filter="*.npy", random_shuffle=True, name="files"
        )
        pipeline.set_outputs(samples)
    return plugin.DALIGenericIterator(
        [pipeline], ["sample"], reader_name="files", auto_reset=True,
        last_batch_policy=plugin.LastBatchPolicy.PARTIAL,
    )  # fmt: skip


DALI = BenchEntry("DALI (npy files)", Kind.PEER, _make)
