"""torchvision for a test, also beside a torch that was built without CUDA."""

from __future__ import annotations

from typing import Any

import pytest

from unstarve.benchmark.bench_plan import Missing
from unstarve.benchmark.optional_packages import torchvision


def torchvision_here() -> Any:
    """Return torchvision with its datasets and transforms, or skip the test."""
    try:
        return torchvision()
    except Missing as why:
        pytest.skip(f"torchvision: {why}")
