"""The parts of unstarve that tuning may choose for a loader of torch's, besides the arguments of that loader.

The names are also those of the switches in a file of saved settings: ``images = true``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

IMAGES: Final = "images"
"""unstarve reads the files of an image folder, in threads."""
GPU_IMAGES: Final = "gpu_images"
"""The same, but a GPU decodes them."""
RING: Final = "ring"
"""Workers hand batches over in reused shared memory."""
THREADS: Final = "threads"
"""Threads read a dataset of unstarve's that releases the GIL."""
GATHER: Final = "gather"
"""The samples are rows in memory: a batch is one copy of its rows, without workers."""
CACHED: Final = "cached"
"""Samples are fetched once, and kept in memory that all workers share."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a search and a reader of its result have to know of a part."""

    what: str
    """As in “did not try …”."""
    price: float
    """How much faster it must be than settings without it: a change of the source must be worth it."""
    threads: bool = False
    """``num_workers`` is a number of threads of the training process."""
    shared: bool = False
    """A thread per core makes each batch with the others: ``num_workers`` is only how far they are ahead."""


PARTS: Mapping[str, Part] = {
    # Pixels differ slightly, and a GPU that decodes has more to do.
    IMAGES: Part("reading the images with unstarve", 1.05, threads=True, shared=True),
    GPU_IMAGES: Part("decoding the images on the GPU", 1.08, threads=True, shared=True),
    RING: Part("unstarve's hand-off (engine ring)", 1.03),
    THREADS: Part("unstarve's threads (engine threads)", 1.03, threads=True),
    GATHER: Part("gathering rows without workers (engine gather)", 1.03),
    CACHED: Part("CachedDataset", 1.05),
}
ENGINE_PARTS = (RING, THREADS, GATHER)
"""These are engines of `unstarve.DataLoader`, by the same names."""
