"""How far a sampler may be asked ahead of time without anybody noticing it in a random stream."""

from __future__ import annotations

import math
from typing import Any

from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

# All of these draw an epoch's numbers when they are asked for the first one, and no more.
_AT_ONCE = (SequentialSampler, SubsetRandomSampler, WeightedRandomSampler, DistributedSampler)


def settled_batches(batch_sampler: Any) -> float:
    """Return how many batches of an epoch are settled with its first; 0 for samplers that may do anything.

    The seed of a RandomSampler is its own; but one that shares a generator draws from it again at its end.
    """
    if type(batch_sampler) is not BatchSampler:
        return 0
    sampler: Any = batch_sampler.sampler
    at_once = type(sampler) in _AT_ONCE or vars(type(sampler)).get("draws_at_once", False)  # as our own say
    if at_once or (type(sampler) is RandomSampler and sampler.generator is None):
        return math.inf
    if type(sampler) is RandomSampler and not sampler.replacement:
        return len(batch_sampler) - 1 if sampler.num_samples <= len(sampler.data_source) else 0
    return 0
