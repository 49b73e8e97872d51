"""A finished batch for a loader that expects a list of samples.

torch's fetcher passes the result of `__getitems__` to the collate function. Our datasets return a `Batched`
there: to a user's own collate function it is a sequence of samples; `default_collate` takes the finished
batch out of it, because the type of its first sample is registered with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import numpy as np
import torch
from torch.utils.data._utils.collate import collate, default_collate_fn_map


class Batched(Sequence[Any]):
    """`whole` is what `default_collate` would make of the samples; `sample(i)` returns one of `count`."""

    __slots__ = ("_count", "_sample", "whole")

    def __init__(self, whole: Any, count: int, sample: Callable[[int], Any]) -> None:
        self.whole = whole
        self._count = count
        self._sample = sample

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        return map(self._sample, range(self._count))

    @overload
    def __getitem__(self, at: int) -> Any: ...
    @overload
    def __getitem__(self, at: slice) -> list[Any]: ...
    def __getitem__(self, at: int | slice) -> Any:
        if at == 0 and self._count:  # first, because every collate function asks for it
            return _marked(self._sample(0))
        if isinstance(at, slice):
            return [self._sample(i) for i in range(self._count)[at]]
        position = range(self._count)[at]
        sample = self._sample(position)
        return _marked(sample) if position == 0 else sample


class _FirstTensor(torch.Tensor):
    __torch_function__: Any = torch._C._disabled_torch_function_impl


class _FirstArray(np.ndarray[Any, Any]):
    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return array[()] if return_scalar else array  # results of computations are ordinary arrays


class _FirstTuple(tuple[Any, ...]):
    __slots__ = ()


class _FirstList(list[Any]):
    __slots__ = ()


class _FirstDict(dict[Any, Any]):
    __slots__ = ()


_MARKS: dict[type[Any], type[Any]] = {tuple: _FirstTuple, list: _FirstList, dict: _FirstDict}


def _marked(sample: Any) -> Any:
    """Return the sample as a type that is registered with `default_collate` and behaves like its own."""
    if type(sample) is torch.Tensor:
        return sample.as_subclass(_FirstTensor)
    if type(sample) is np.ndarray:
        return sample.view(_FirstArray)
    mark = _MARKS.get(type(sample))
    return sample if mark is None else mark(sample)


def _plain(sample: Any) -> Any:
    if isinstance(sample, _FirstTensor):
        return sample.as_subclass(torch.Tensor)
    if isinstance(sample, _FirstArray):
        return sample.view(np.ndarray)
    for kind, mark in _MARKS.items():
        if isinstance(sample, mark):
            return kind(sample)
    return sample


def _collate_batched(batch: Any, *, collate_fn_map: Any = None) -> Any:
    if isinstance(batch, Batched):
        return batch.whole
    # Somebody collates a list of first samples taken from several batches.
    return collate([_plain(sample) for sample in batch], collate_fn_map=collate_fn_map)


_FIRSTS: tuple[type[Any], ...] = (_FirstTensor, _FirstArray, *_MARKS.values())
default_collate_fn_map.update(dict.fromkeys(_FIRSTS, _collate_batched))
