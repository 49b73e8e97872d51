"""What "the same as torch's loader" means: structure, types, bits, order and random draws."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch


def assert_same(ours: Any, theirs: Any) -> None:
    """The same structure with the same bits in it."""
    assert type(ours) is type(theirs)
    if isinstance(theirs, torch.Tensor):
        assert (ours.dtype, ours.shape, ours.stride()) == (theirs.dtype, theirs.shape, theirs.stride())
        assert not ours.requires_grad
        assert (
            ours.numpy(force=True).tobytes() == theirs.numpy(force=True).tobytes()
            if known(ours)
            else (torch.equal(ours.contiguous().view(torch.uint8), theirs.contiguous().view(torch.uint8)))
        )
    elif isinstance(theirs, dict):
        assert list(ours) == list(theirs)
        assert_same(list(ours.values()), list(theirs.values()))
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs)
        for our, their in zip(ours, theirs, strict=True):
            assert_same(our, their)
    else:
        assert ours == theirs


def known(tensor: torch.Tensor) -> bool:
    return tensor.dtype not in (torch.bfloat16, torch.float8_e4m3fn)


def epochs(make: Callable[[], Any], count: int = 2, take: int | None = None) -> tuple[list[Any], list[Any]]:
    """What `count` epochs give, cloned at once, and the random states behind them.

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
