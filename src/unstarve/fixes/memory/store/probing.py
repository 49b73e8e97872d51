"""A first look at a dataset: a few of its samples tell what the others will be like."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from unstarve.fixes.memory.store import blobs, filling
from unstarve.fixes.memory.store.frozen import random_state
from unstarve.fixes.memory.store.layout import Layout, check, layout_of
from unstarve.fixes.samples.leaves import OBJECT


@dataclass(frozen=True)
class Probe:
    """A few samples of a dataset, copied, by index.

    `blob_bytes` is what a sample takes on average outside of rows; `drew`: random numbers were drawn.
    """

    samples: dict[int, Any]
    layout: Layout
    blob_bytes: float
    drew: bool


def probe(source: Any, count: int) -> Probe:
    """Read the first sample, one from the middle and the last. Raises CacheError for one that fails."""
    before = random_state()
    samples = {}
    for index in sorted({0, count // 2, count - 1} if count else ()):
        sample = filling.fetched(source, index)
        try:
            check(sample)
            samples[index] = blobs.loads(blobs.dumps(sample))  # a copy: the dataset may reuse its memory
        except Exception as error:  # whatever pickle raises for what a dataset returns
            raise filling.cannot_keep(index, error) from error
    drew = random_state() != before
    found = list(samples.values())
    layout = layout_of(found) if found else Layout(0, (OBJECT,), batchable=False)
    return Probe(samples, layout, _blob_bytes(layout, found), drew)


def _blob_bytes(layout: Layout, samples: list[Any]) -> float:
    if not layout.in_blobs or not samples:
        return 0.0
    sizes = []
    for sample in samples:
        values = layout.values(sample)
        kept = sample if values is None else [values[at] for at in layout.in_blobs]
        sizes.append(len(blobs.dumps(kept)))
    return sum(sizes) / len(sizes)
