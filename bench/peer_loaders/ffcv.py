"""ffcv: samples in one file in its own format."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from unstarve.benchmark.bench_plan import BenchEntry
from unstarve.benchmark.optional_packages import installed
from unstarve.model import Kind

_THREADS = 2


class _Arrays:
    """What ffcv's writer takes: samples by index, each a tuple of fields."""

    def __init__(self, paths: list[Any]) -> None:
        self._paths = paths

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> tuple[Any]:
        return (torch.load(self._paths[index]).numpy(),)


def _make(stored: Any) -> Any:
    fields, loader = installed("ffcv.fields"), installed("ffcv.loader")
    path = stored.folder / "all.beton"
    if not path.exists():
        sample = torch.load(stored.paths[0])
        field = fields.NDArrayField(dtype=np.dtype("float32"), shape=tuple(sample.shape))
        writer = installed("ffcv.writer").DatasetWriter(str(path), {"sample": field}, num_workers=1)
        writer.from_indexed_dataset(_Arrays(stored.paths))
    steps = [installed("ffcv.fields.ndarray").NDArrayDecoder(), installed("ffcv.transforms").ToTensor()]
    return loader.Loader(
        str(path), batch_size=stored.batch_size, num_workers=_THREADS, order=loader.OrderOption.RANDOM,
        drop_last=False, pipelines={"sample": steps},
    )  # fmt: skip


FFCV = BenchEntry("ffcv", Kind.PEER, _make)
