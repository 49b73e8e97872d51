"""An image as a sample in a worker of torch's own loader, whose batch goes into memory that is used again.

`default_collate` asks by the type of the first sample who collates; that is the only place where a transform
can have a say in how a batch is made.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data._utils.collate import collate_tensor_fn, default_collate_fn_map

from unstarve.fixes.memory.lending import Lender

# Made where none is free: as many as a worker has batches under way, seldom all of these.
_lend = Lender(16)


class ImageTensor(torch.Tensor):
    """A tensor in all respects; what is computed from it, or arrives in another process, is a plain one."""

    __torch_function__: Any = torch._C._disabled_torch_function_impl

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.as_subclass(torch.Tensor).__reduce_ex__(protocol)  # type: ignore[no-untyped-call] # torch's


def _collate(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """Return what torch's own function returns, in memory that is lent."""
    function = (collate_fn_map or default_collate_fn_map).get(torch.Tensor, collate_tensor_fn)
    plain = [image.as_subclass(torch.Tensor) for image in batch]
    first = plain[0]
    if function is collate_tensor_fn and all(
        image.shape == first.shape and image.dtype == first.dtype for image in plain
    ):
        lent = _lend((len(plain), *first.shape), first.dtype)
        if lent is not None:
            torch.stack(plain, 0, out=lent.inside)
            return lent.batch
    return function(plain, collate_fn_map=collate_fn_map)


default_collate_fn_map[ImageTensor] = _collate
