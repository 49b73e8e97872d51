"""Which of several training processes this one is."""

from __future__ import annotations

import os

import torch


def environment_rank() -> int | None:
    """As the launcher (torchrun, accelerate, …) has told it; None when nobody has."""
    rank = os.environ.get("RANK", "")
    return int(rank) if rank.isdigit() else None


def group_rank() -> int | None:
    """As the process group knows it; None when there is none yet."""
    distributed = torch.distributed
    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else None
