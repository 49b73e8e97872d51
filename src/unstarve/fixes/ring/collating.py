"""torch's `default_collate`, with its tensors stacked right where they will be sent from.

For dicts and tuples of tensors, which is what most datasets give, the way there is short. What is not as
expected is collated, or refused, by torch itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.data._utils import collate

Allocate = Callable[[Sequence[int], torch.dtype], torch.Tensor]

_functions: dict[Any, Callable[..., Any]] = collate.default_collate_fn_map


def collate_into(allocate: Allocate) -> Callable[[Any], Any]:
    """Let `default_collate` stack in memory from `allocate`; return a faster one that does so, too."""
    if _functions[torch.Tensor] is not collate.collate_tensor_fn:
        return collate.default_collate  # with the user's own way to stack

    def stacked(tensors: Any, *, collate_fn_map: Any = None) -> Any:
        first = tensors[0]
        if type(first) is torch.Tensor and first.is_cpu and first.layout is torch.strided and first.numel():
            try:
                out = allocate((len(tensors), *first.shape), first.dtype)
                return torch.stack(tensors, 0, out=out)
            except Exception:  # what cannot be stacked is torch's to refuse, in its own words
                pass
        return collate.collate_tensor_fn(tensors, collate_fn_map=collate_fn_map)

    def column(values: Any) -> Any:
        return stacked(values) if type(values[0]) is torch.Tensor else collate.default_collate(values)

    def collated(samples: Any) -> Any:
        if type(samples) is list and samples and _functions[torch.Tensor] is stacked:
            first = samples[0]
            kind = type(first)
            try:
                if kind is dict:
                    return {key: column([sample[key] for sample in samples]) for key in first}
                if kind is tuple and all(len(sample) == len(first) for sample in samples):
                    return [column(values) for values in zip(*samples, strict=True)]
                if kind is torch.Tensor:
                    return stacked(samples)
            except Exception:  # as above
                pass
        return collate.default_collate(samples)

    _functions[torch.Tensor] = stacked
    return collated
