"""Whether the native part, `unstarve._native`, is in use.

Everything works without it, more slowly: each native function has a fallback in Python or in a library, with
the same results and the same kinds of errors. `UNSTARVE_NATIVE=0` in the environment chooses the fallbacks.
"""

from __future__ import annotations

import functools
import importlib
import os
from types import ModuleType


def native() -> ModuleType | None:
    """Return the native module, or None if the fallbacks are in use. Decided once per process."""
    return _decide()[0]


def why_not_native() -> str | None:
    """Return the reason for using the fallbacks, for people to read; None if the native module is in use."""
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
