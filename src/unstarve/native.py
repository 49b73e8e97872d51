"""Whether the compiled part, `unstarve._native`, is in use.

Everything works without it: each native function has a Python twin that gives the same results and raises
the same errors. `UNSTARVE_NATIVE=0` in the environment chooses the twins even where the compiled part exists.
"""

from __future__ import annotations

import functools
import importlib
import os
from types import ModuleType


def native() -> ModuleType | None:
    """Return the compiled module, or None where the Python twins are to be used. Decided once per process."""
    return _decide()[0]


def why_not_native() -> str | None:
    """Return why the Python twins are used, in words for a person; None where the compiled module is."""
    return _decide()[1]


@functools.cache
def _decide() -> tuple[ModuleType | None, str | None]:
    if os.environ.get("UNSTARVE_NATIVE") == "0":
        return None, "switched off by UNSTARVE_NATIVE=0"
    try:
        return importlib.import_module("unstarve._native"), None
    except ModuleNotFoundError:
        return None, "not built: no working C++ compiler when unstarve was installed"
    except ImportError as error:
        return None, f"cannot be loaded: {error}"
