"""The meaning of "the same as torch's loader": structure, types, bits, order and random draws."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch


def assert_same(ours: Any, theirs: Any, *, strides: bool = True, own: bool = False) -> None:
    """The same structure, types, dtypes, shapes and bits; the same strides unless told otherwise.

    `own`: none of our tensors is a view of another.
    """
    assert type(ours) is type(theirs)
    if isinstance(theirs, torch.Tensor):
        assert (ours.dtype, ours.shape, ours.layout) == (theirs.dtype, theirs.shape, theirs.layout)
        assert ours.requires_grad == theirs.requires_grad
        assert not strides or theirs.layout != torch.strided or ours.stride() == theirs.stride()
        assert _bits(ours).equal(_bits(theirs))
        assert not own or not ours._is_view()
    elif isinstance(theirs, (np.ndarray, np.generic)):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        if strides and isinstance(theirs, np.ndarray):
            assert (ours.strides, ours.flags.writeable) == (theirs.strides, theirs.flags.writeable)
        if theirs.dtype.hasobject:
            assert ours.tolist() == theirs.tolist()
        else:
            assert ours.tobytes() == theirs.tobytes()
    elif isinstance(theirs, dict):
        assert list(ours) == list(theirs)
        for key in theirs:
            assert_same(ours[key], theirs[key], strides=strides, own=own)
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs)
        for our, their in zip(ours, theirs, strict=True):
            assert_same(our, their, strides=strides, own=own)
    elif hasattr(theirs, "__dict__") and not isinstance(theirs, (str, bytes, int, float, complex)):
        assert_same(vars(ours), vars(theirs), strides=strides, own=own)
    else:
        assert ours == theirs or (ours != ours and theirs != theirs)  # a NaN


def same(ours: Any, theirs: Any) -> bool:
    """Whether `assert_same` holds, strides aside."""
    try:
        assert_same(ours, theirs, strides=False)
    except AssertionError:
        return False
    return True


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    dense = tensor.detach().to_dense().resolve_conj().resolve_neg()
    return dense.contiguous().reshape(-1).view(torch.uint8)


def epochs(make: Callable[[], Any], count: int = 2, take: int | None = None) -> tuple[list[Any], list[Any]]:
    """The batches of `count` epochs, cloned at once, and the random states after them.

    Between batches a number is drawn, as training does: it shows when each draw of the loader happens.
    """
    torch.manual_seed(11)
    loader = make()
    seen, draws = [], []
    for _ in range(count):
        iterator = iter(loader)
        draws.append(torch.rand(()).item())
        for batch in itertools.islice(iterator, take):
            seen.append(cloned(batch))
            draws.append(torch.rand(()).item())
        del iterator
    generator = getattr(loader, "generator", None)
    states = [torch.get_rng_state()] + ([] if generator is None else [generator.get_state()])
    return seen, [draws, states]


def cloned(batch: Any) -> Any:
    if isinstance(batch, torch.Tensor):
        return batch.clone()
    if isinstance(batch, dict):
        return {key: cloned(value) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*map(cloned, batch))
    return [cloned(part) for part in batch]


def assert_same_epochs(theirs: Callable[[], Any], ours: Callable[[], Any], **settings: Any) -> None:
    """The same batches in the same order, and all generators in the same state after each of them."""
    their_batches, their_draws = epochs(theirs, **settings)
    our_batches, our_draws = epochs(ours, **settings)
    assert_same(our_batches, their_batches)
    assert_same(our_draws, their_draws)


def tensors_in(batch: Any) -> Iterator[torch.Tensor]:
    if isinstance(batch, torch.Tensor):
        yield batch
    else:
        for part in batch.values() if isinstance(batch, dict) else batch:
            yield from tensors_in(part)
