"""The library that counts file reads: where it is, and how a command loads it."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from unstarve.native import why_not_native

_NAME = "_io_shim.so"
_FOLDER = "UNSTARVE_IO"
_SEPARATORS = " :"
"""Of LD_PRELOAD: a path with one of them in it cannot be named there."""


def why_not_io() -> str | None:
    """Why file reads cannot be counted, in one sentence; None if they can."""
    if not sys.platform.startswith("linux"):
        return "file reads are counted on Linux only"
    library = _library()
    if library is None:
        return f"the library that counts file reads is {why_not_native() or 'not built'}"
    if any(separator in str(library) for separator in _SEPARATORS):
        return f"a library in a folder with a blank or a colon in its name cannot be preloaded: {library}"
    return None


def io_environment(parts: str) -> dict[str, str]:
    """The variables that make every program of the command count its file reads into `parts`."""
    loaded = " ".join(filter(None, [os.environ.get("LD_PRELOAD"), str(_library())]))
    return {"LD_PRELOAD": loaded, _FOLDER: parts}


def _library() -> Path | None:
    """The installed library; an editable install has it next to the native module, away from the sources."""
    if os.environ.get("UNSTARVE_NATIVE") == "0":
        return None
    spec = importlib.util.find_spec("unstarve._native")
    folders = [Path(__file__).parents[1]]
    if spec is not None and spec.origin is not None:
        folders.append(Path(spec.origin).parent)
    return next((folder / _NAME for folder in folders if (folder / _NAME).is_file()), None)
