"""What is installed here of the other projects."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from unstarve.benchmark.entries import Missing


def installed(module: str) -> Any:
    """Import a module of another project; raise Missing where that does not work."""
    try:
        return import_module(module)
    except Exception as error:  # a package that is broken here, whatever way, is not measured
        absent = isinstance(error, ModuleNotFoundError) and (error.name or "") == module.partition(".")[0]
        raise Missing("not installed" if absent else f"cannot be imported: {error}") from error
