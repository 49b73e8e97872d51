"""Packages of other projects, if they are installed."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import torch

from unstarve.benchmark.bench_plan import Missing


def installed(module: str) -> Any:
    """Import a module of another project; raise Missing if that fails."""
    try:
        return import_module(module)
    except Exception as error:  # a package that is broken in any way is not measured
        absent = isinstance(error, ModuleNotFoundError) and (error.name or "") == module.partition(".")[0]
        raise Missing("not installed" if absent else f"cannot be imported: {error}") from error


_OPERATORS = (
    "nms", "qnms", "roi_align", "_roi_align_backward", "roi_pool", "_roi_pool_backward", "ps_roi_align",
    "_ps_roi_align_backward", "ps_roi_pool", "_ps_roi_pool_backward", "deform_conv2d",
    "_deform_conv2d_backward",
)  # fmt: skip
_declared: list[torch.library.Library] = []
"""Kept alive: declarations end with their library object."""


@cache
def torchvision() -> Any:
    """Return torchvision with its datasets and transforms; raise Missing if it does not work.

    A wheel built for CUDA cannot load its operators beside a torch without CUDA, and then fails to import.
    Datasets and transforms need none of the operators; declaring their names is enough.
    """
    try:
        return installed("torchvision")
    except Missing as why:
        if str(why) == "not installed":
            raise
    declare_operators()
    return installed("torchvision")


def declare_operators() -> None:
    """Declare the names of torchvision's operators, once."""
    if not _declared:
        declared: Any = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call] # torch's own
        for name in _OPERATORS:
            declared.define(f"{name}(Tensor a) -> Tensor")
        _declared.append(declared)
