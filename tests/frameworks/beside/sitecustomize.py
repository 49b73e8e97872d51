"""torchvision beside a torch without CUDA: PyPI's wheel cannot load its operators there, and needs none here.

On the path of the scripts under test: their names are declared right before torchvision is first imported.
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any


class _Declare:
    """Finds nothing; looks at the first import of torchvision."""

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> None:
        if name == "torchvision":
            sys.meta_path.remove(cls)
            from unstarve.benchmark.optional_packages import declare_operators

            declare_operators()


try:
    if sys.platform == "linux" and "+cpu" in version("torch") and "+cpu" not in version("torchvision"):
        sys.meta_path.insert(0, _Declare)
except PackageNotFoundError:
    pass
