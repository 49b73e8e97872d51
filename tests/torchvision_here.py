"""torchvision beside a torch that was built without CUDA, where its wheel cannot load its own operators.

Its Python parts (datasets, transforms) need none of them; that their names are declared is enough.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType

import pytest
import torch

_OPERATORS = (
    "nms", "qnms", "roi_align", "_roi_align_backward", "roi_pool", "_roi_pool_backward", "ps_roi_align",
    "_ps_roi_align_backward", "ps_roi_pool", "_ps_roi_pool_backward", "deform_conv2d",
    "_deform_conv2d_backward",
)  # fmt: skip
_declared: list[torch.library.Library] = []  # declarations end with their library


@cache
def torchvision_here() -> ModuleType:
    """Return torchvision with its datasets and transforms, or skip the test."""
    try:
        return _imported()
    except Exception:  # as it is installed it does not work: whatever way
        pass
    try:
        declared = torch.library.Library("torchvision", "DEF")
        for name in _OPERATORS:
            declared.define(f"{name}(Tensor a) -> Tensor")
        _declared.append(declared)
        return _imported()
    except Exception as error:
        pytest.skip(f"torchvision cannot be used here: {error}")


def _imported() -> ModuleType:
    import torchvision
    import torchvision.datasets
    import torchvision.transforms.v2

    return torchvision  # type: ignore[no-any-return] # untyped
