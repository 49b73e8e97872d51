"""Do something as soon as a module of another library has been imported: now, if it has been."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from unstarve.launch import wrappers

Action = Callable[[Any], None]
"""Called with the module."""


def after_import(name: str, action: Action) -> None:
    """Call `action` with the module of this name; once, even if this is called again while it waits."""
    module = sys.modules.get(name)
    if module is not None:
        wrappers.quietly(lambda: action(module))
    elif not any(isinstance(finder, _AfterImport) and finder.name == name for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterImport(name, action))


def stop_waiting() -> None:
    """Forget about imports that have not happened."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _AfterImport)]


class _AfterImport:
    """Import hook for one module."""

    def __init__(self, name: str, action: Action) -> None:
        self.name = name
        self._action = action
        self._is_asking = False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module as Python finds it; when it has run, the action follows."""
        if name != self.name or self._is_asking:
            return None
        self._is_asking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._is_asking = False
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                    wrappers.quietly(lambda: self._action(module))

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]  # of this one loader
        return spec
