"""The accelerator, as far as looking does not wake it: no context is ever made here."""

from __future__ import annotations

import torch


def cuda_in_use() -> bool:
    """Whether this process has initialized CUDA already."""
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]  # torch does not type it
