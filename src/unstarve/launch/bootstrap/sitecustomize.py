"""First code of every Python process that `unstarve run` starts; found through PYTHONPATH.

It takes itself off ``sys.path`` and runs the user's own ``sitecustomize``. Then it waits: unstarve attaches
when the process imports ``torch.utils.data.dataloader``, and a process that never does pays nothing. unstarve
is loaded from where the launcher runs it, so that a command in another Python environment does not need
unstarve installed there.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

_TARGET = "torch.utils.data.dataloader"
_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = os.path.dirname(os.path.dirname(_HERE))


def _delete_marker() -> None:
    """Show the launcher that the bootstrap has run; see ``launch/bootstrap_check.py``."""
    marker = os.environ.get("UNSTARVE_UNSEEN", "")
    if marker.endswith(".unseen"):
        with contextlib.suppress(OSError):  # another process of the command was first
            os.unlink(marker)


def _run_users_sitecustomize() -> None:
    """Import the ``sitecustomize`` that this one hides."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
    ours = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401 - imported for its effects
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
        if ours is not None:
            sys.modules["sitecustomize"] = ours


def _attach() -> None:
    try:
        if "unstarve" not in sys.modules:
            spec = importlib.util.spec_from_file_location(
                "unstarve", os.path.join(_PACKAGE, "__init__.py"), submodule_search_locations=[_PACKAGE]
            )
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules["unstarve"] = module
            spec.loader.exec_module(module)
        from unstarve.launch.hooks import attach

        attach()
    except Exception as error:  # training must go on, whatever is wrong with unstarve
        print(f"unstarve: not recording process {os.getpid()}: {error!r}", file=sys.stderr)


class _AfterImport:
    """Import hook that removes itself and calls `_attach` once the target module has been executed."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _TARGET:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                _attach()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]  # of this one loader
        return spec


_delete_marker()
sys.meta_path.insert(0, _AfterImport())
_run_users_sitecustomize()
