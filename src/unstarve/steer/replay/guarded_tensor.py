"""A tensor that can be handed out many times without copying, and that notices when it was changed."""

from __future__ import annotations

import torch

_COPIED_BYTES = 4096
"""Up to here a copy on the host is about as cheap as the check that would save it."""

_SAMPLED_ELEMENTS = 256

# Bits are compared, not values: a NaN is equal to itself, and −0 is not 0.
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class ReplayTensor:
    """Aliases of a working copy, which is replaced when it was written to.

    `pristine` belongs to this object from now on and is never handed out. With a `device`, the working
    copy lives there.
    """

    def __init__(self, pristine: torch.Tensor, device: torch.device | None) -> None:
        self._pristine = pristine
        self._device = pristine.device if device is None else device
        self._requires_grad = pristine.requires_grad
        self._sample: tuple[torch.Tensor, torch.Tensor] | None = None
        self._watched = not self._is_small_on_host() and self._watch()

    def hand_out(self) -> torch.Tensor:
        """The tensor as it was kept, without a gradient or a history; the caller may write to it."""
        if not self._watched:
            return private_clone(self._pristine, self._device).requires_grad_(self._requires_grad)
        if self._is_changed():
            # A loop that changes its batches does so at every step. From now on the copy must not cross
            # to the device again, or replay would measure what it is meant to leave out.
            self._pristine = self._pristine.to(self._device)
            self._watched = self._watch()
        return self._working.detach().requires_grad_(self._requires_grad)

    def _watch(self) -> bool:
        """Make a working copy and remember how it looks; False for a kind that cannot be checked."""
        self._working = private_clone(self._pristine, self._device)
        try:
            self._version = self._working._version
            self._storage_bytes = self._working.untyped_storage().nbytes()
            if self._device.type == "cpu":
                seen = _sampled(self._working)
                self._sample = seen, seen.clone()
        except (RuntimeError, NotImplementedError, KeyError, TypeError):
            return False
        return True

    def _is_changed(self) -> bool:
        if self._working._version != self._version:
            return True
        # Before the sample: reading from a storage that was shrunk would read freed memory.
        if self._working.untyped_storage().nbytes() != self._storage_bytes:
            return True
        return self._sample is not None and not torch.equal(*self._sample)

    def _is_small_on_host(self) -> bool:
        on_host = self._device.type == "cpu" and not self._pristine.is_pinned()
        return on_host and self._pristine.numel() * self._pristine.element_size() <= _COPIED_BYTES


def private_clone(tensor: torch.Tensor, device: torch.device | None = None) -> torch.Tensor:
    """A copy in memory of its own that keeps type, layout in memory, pinning and `requires_grad`."""
    # A batch met in inference mode may be replayed into training, where its tensors could not be used.
    with torch.inference_mode(False), torch.no_grad():
        clone = tensor.detach().clone()
        if device is not None and device != tensor.device:
            clone = clone.to(device)
        elif tensor.device.type == "cpu" and tensor.is_pinned():
            clone = clone.pin_memory()
        return clone.requires_grad_(tensor.requires_grad)


def _sampled(dense: torch.Tensor) -> torch.Tensor:
    """A view of elements spread evenly over the memory of `dense`, as integers of their width."""
    plain = dense.detach().as_subclass(torch.Tensor)
    count = min(plain.numel(), _SAMPLED_ELEMENTS)
    spread = plain.as_strided((count,), (plain.numel() // count,), plain.storage_offset())
    return spread.view(_BITS[plain.element_size()])
