"""Whether a sampler may be asked ahead of time without anybody noticing it in a random stream."""

from __future__ import annotations

from typing import Any

from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

# All of these draw an epoch's numbers when they are asked for the first one.
_AT_ONCE = (SequentialSampler, SubsetRandomSampler, WeightedRandomSampler, DistributedSampler)


def draws_at_once(batch_sampler: Any) -> bool:
    """Return whether an epoch's order is settled with its first batch. One's own samplers may do anything."""
    if type(batch_sampler) is not BatchSampler:
        return False
    sampler: Any = batch_sampler.sampler
    if type(sampler) is RandomSampler:
        return sampler.generator is None or (
            not sampler.replacement and sampler.num_samples <= len(sampler.data_source)
        )
    return type(sampler) in _AT_ONCE
