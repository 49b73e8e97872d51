"""Keep decoded images, so that nothing is decoded from the second epoch on.

They are in the store of `CachedDataset`: in memory that all workers and ranks share, or in a file that the
next run finds again, with the same budget and the same rules when a process dies.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from unstarve.errors import ImageError, UsageError
from unstarve.fixes.datasets.images import image_codec
from unstarve.fixes.datasets.images.image_files import read_bytes
from unstarve.fixes.io.reading import Names
from unstarve.fixes.memory.store.cache_placement import Budget, CacheOptions, OverBudget, budget_of
from unstarve.fixes.memory.store.dataset_probe import DatasetProbe
from unstarve.fixes.memory.store.sample_layout import SampleLayout
from unstarve.fixes.memory.store.stored_copies import copies_of
from unstarve.fixes.samples.leaves import RAW, Raw, describe
from unstarve.fixes.samples.structure import Node

_PROBES = 16
_PROBED_BYTES = 64 << 20
"""The most pixels that are decoded to estimate the size of all: of large images, fewer are probed."""
_LAYOUT = SampleLayout(Node(tuple, None, (0, 1, 2)), (describe(0), describe(0), RAW), batchable=False)
"""A cached image: height, width, pixels."""


class DecodedFiles:
    """The images in files as samples of a dataset that can be cached."""

    def __init__(self, names: Names, *, upright: bool) -> None:
        self._names = names
        self._upright = upright

    def __getitem__(self, index: int) -> tuple[int, int, Raw]:
        try:
            pixels = self.decode(index)
        except ImageError:  # an empty entry: without it, a cache file would never be complete
            return 0, 0, Raw(torch.empty(0, dtype=torch.uint8))
        return pixels.shape[0], pixels.shape[1], Raw(pixels.flatten())

    def decode(self, index: int) -> torch.Tensor:
        """Return pixels, uint8 [h, w, 3]. Raises ImageError."""
        return image_codec.decode_whole(self._file(index), upright=self._upright)

    def decoded_bytes(self, index: int) -> int:
        """Return the size of the decoded pixels by the file's header; 0 if that cannot be read."""
        try:
            (size,) = image_codec.measure([self._file(index)], upright=self._upright)
        except ImageError:
            return 0
        return 0 if isinstance(size, ImageError) else 3 * size[0] * size[1]

    def _file(self, index: int) -> bytes:
        return read_bytes(self._names.at(int(self._names.starts[index])))


class DecodedCache:
    """The pixels of the images in `names`, decoded when they are first needed."""

    def __init__(self, names: Names, wishes: CacheOptions, key: str | None, *, upright: bool) -> None:
        self._decoded = DecodedFiles(names, upright=upright)
        if key is not None and not upright:
            key += ", as stored"
        count = len(names.starts)
        probed = _probe(self._decoded, count)
        self._copies = copies_of(self._decoded, count, probed, wishes, key, show=False)

    def get(self, index: int) -> torch.Tensor:
        """Return the cached pixels, uint8 [h, w, 3], which must not be changed. Raises ImageError."""
        height, width, raw = self._copies.get(index)
        if not height:
            return self._decoded.decode(index)  # the file may have been repaired since
        pixels: torch.Tensor = raw.data
        return pixels.view(height, width, 3)

    def has(self, index: int) -> bool:
        """Whether the pixels are there already."""
        return self._copies.has(index)

    def where(self) -> str:
        """Describe where the images are cached, how many, and their size."""
        return self._copies.where()


def wishes_of(
    cache: Literal["ram", "disk"],
    budget: str | int | None,
    over_budget: OverBudget,
    cache_dir: str | Path | None,
) -> CacheOptions:
    """Return the arguments for the store of `CachedDataset`. Raises UsageError for a wrong one."""
    if cache not in ("ram", "disk"):
        raise UsageError(f'cache must be "ram", "disk" or None, got {cache!r}')
    if over_budget not in ("error", "partial", "disk"):
        raise UsageError(f'over_budget must be "error", "partial" or "disk", got {over_budget!r}')
    if cache == "disk":
        return CacheOptions(Budget(0, 'cache="disk"'), "disk", lazy=True, cache_dir=cache_dir)
    return CacheOptions(budget_of(budget), over_budget, lazy=True, cache_dir=cache_dir)


def _probe(decoded: DecodedFiles, count: int) -> DatasetProbe:
    """Decode a few images to estimate the size of all."""
    places = np.unique(np.linspace(0, count - 1, min(_PROBES, count)).astype(int)).tolist()
    sizes = {index: decoded.decoded_bytes(index) for index in places}
    found: dict[int, Any] = {}
    room = _PROBED_BYTES
    for index, size in sizes.items():
        if size <= room:
            room -= size
            found[index] = decoded[index]
    known = [size for size in sizes.values() if size]
    return DatasetProbe(found, _LAYOUT, sum(known) / max(1, len(known)), drew=False)
