"""The ledger: which samples a loader gave out, as counts and digests."""

from __future__ import annotations

from typing import NamedTuple

DIGEST_BYTES = 8
"""Of one sample."""


class SampleCount(NamedTuple):
    """What the sampler of a loader gave out in one epoch."""

    loader: int
    epoch: int
    indices: int
    headed: int
    """Indices at the beginning that `head` is a digest of."""
    head: int
    sampler_epoch: int | None
    """The sampler's own epoch, which ``set_epoch`` sets; None when it has none."""
    shuffles: bool | None
    """Whether a sampler of torch's own shuffles; None for any other."""
    length: int | None
    """Samples of the dataset."""
    distinct: int | None
    """Different indices; None where counting them would have cost too much, as for the rest."""
    order: int | None
    """A digest of all indices in order …"""
    members: int | None
    """… and in any order."""


class DigestedBatch(NamedTuple):
    """Digests of the samples of one delivered batch."""

    loader: int
    epoch: int
    task: int
    digests: tuple[bytes, ...]
