"""torch's `default_collate`, with its tensors stacked right where they will be sent from.

For dicts and tuples of tensors, which is what most datasets give, the way there is short. What is not as
expected is collated, or refused, by torch itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data._utils import collate

Allocate = Callable[[Sequence[int], torch.dtype], torch.Tensor]

_functions: dict[Any, Callable[..., Any]] = collate.default_collate_fn_map
_default: Callable[[Any], Any] = collate.default_collate
_NOT_BY_DEFAULT = frozenset({dict, tuple, Mapping, Sequence})
"""What torch takes apart itself, unless a user has told it who else does."""


class Collate:
    """Stands in for `default_collate`, which stacks in memory from `allocate`, too, from now on."""

    def __init__(self, allocate: Allocate) -> None:
        self._allocate = allocate
        self._stack = self._stacked  # one object, to be known again
        if _functions[torch.Tensor] is collate.collate_tensor_fn:
            _functions[torch.Tensor] = self._stack

    @property
    def is_in_place(self) -> bool:
        """Whether tensors are stacked here; a user may have put ways of their own in its place."""
        return _functions[torch.Tensor] is self._stack and _NOT_BY_DEFAULT.isdisjoint(_functions)

    def __call__(self, samples: Any) -> Any:
        if type(samples) is list and samples and self.is_in_place:
            first = samples[0]
            kind = type(first)
            try:
                if kind is dict:
                    return {key: self._column([sample[key] for sample in samples]) for key in first}
                if kind is tuple and all(len(sample) == len(first) for sample in samples):
                    return [self._column(values) for values in zip(*samples, strict=True)]
                if kind is torch.Tensor:
                    return self._stacked(samples)
            except Exception:  # what cannot be collated is torch's to refuse, in its own words
                pass
        return _default(samples)

    def _column(self, values: Any) -> Any:
        return self._stacked(values) if type(values[0]) is torch.Tensor else _default(values)

    def _stacked(self, tensors: Any, *, collate_fn_map: Any = None) -> Any:
        first = tensors[0]
        if type(first) is torch.Tensor and first.is_cpu and first.layout is torch.strided and first.numel():
            try:
                out = self._allocate((len(tensors), *first.shape), first.dtype)
                return torch.stack(tensors, 0, out=out)
            except Exception:  # as above
                pass
        return collate.collate_tensor_fn(tensors, collate_fn_map=collate_fn_map)
