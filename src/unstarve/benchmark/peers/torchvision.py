"""torchvision, whose datasets and transforms most people read pictures with."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from unstarve.benchmark.entries import Missing
from unstarve.benchmark.peers.installed import installed

_OPERATORS = (
    "nms", "qnms", "roi_align", "_roi_align_backward", "roi_pool", "_roi_pool_backward", "ps_roi_align",
    "_ps_roi_align_backward", "ps_roi_pool", "_ps_roi_pool_backward", "deform_conv2d",
    "_deform_conv2d_backward",
)  # fmt: skip
_declared: list[torch.library.Library] = []
"""Kept, for what a library declares ends with it."""


@cache
def torchvision() -> Any:
    """Return torchvision with its datasets and transforms; raise Missing where it does not work.

    Its wheel is built for CUDA and cannot load its operators beside a torch without; then it does not even
    import. Datasets and transforms need none of them: that their names are declared is enough.
    """
    try:
        return installed("torchvision")
    except Missing as why:
        if str(why) == "not installed":
            raise
    declared: Any = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call] # torch's own
    for name in _OPERATORS:
        declared.define(f"{name}(Tensor a) -> Tensor")
    _declared.append(declared)
    return installed("torchvision")
