"""First code of every Python process that `unstarve run` starts; found through PYTHONPATH.

It takes itself off ``sys.path`` and runs the user's own ``sitecustomize``. Then it waits: unstarve attaches
when the process imports ``torch.utils.data.dataloader``, and a process that never does pays nothing. unstarve
is loaded from where the launcher runs it, so that a command in another Python environment does not need
unstarve installed there.

When the process ends, it leaves the exception that nobody caught and its last words on standard error for the
launcher, which knows whether the command failed (``launch/command_errors.py``). Nothing printed changes.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

_TORCH = "torch.utils.data.dataloader"
_RAY = ("ray", "ray.data.iterator", "ray.train.v2._internal.execution.worker_group.thread_runner")
_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = os.path.dirname(os.path.dirname(_HERE))
_FIRST_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
"""Before any library was imported: some of them change it."""
_MOST_CHARACTERS = 4000
"""Of an exception and of standard error: the last of them are kept."""


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


def _attach(name: str) -> None:
    """The module `name` has been imported."""
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
        from unstarve import machine

        machine.first_cores = _FIRST_CORES
        if name == "ray":
            from unstarve.launch.ray_environment import attach
        elif name in _RAY:
            from unstarve.launch.hooks import attach_to_ray as attach
        else:
            from unstarve.launch.hooks import attach
        attach()
    except Exception as error:  # training must go on, whatever is wrong with unstarve
        print(f"unstarve: not recording process {os.getpid()}: {error!r}", file=sys.stderr)


def _keep_last_words() -> Callable[[], str]:
    """Remember the end of what is written to standard error; returns a function that tells it.

    A script that leaves with ``sys.exit`` has no exception to ask: argparse, click and many scripts print
    what is wrong first. Closures, not globals: standard error is written to until the very end.
    """
    stream, most, last = sys.stderr, _MOST_CHARACTERS, [""]
    if stream is None:
        return lambda: ""
    original = stream.write

    def write(text: str) -> int:
        count = original(text)
        last[0] = (last[0] + text)[-most:]
        return count

    with contextlib.suppress(AttributeError):  # not a plain text stream
        stream.write = write  # type: ignore[method-assign]  # of this one stream
    return lambda: last[0]


def _leave_last_words(parts: str, last_words: Callable[[], str]) -> None:
    """Called last at exit: write down how the process ended, for the launcher to read."""
    with contextlib.suppress(Exception):  # the folder is gone, the disk is full: then nothing is known
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        # Whoever imports modules after a KeyboardInterrupt changes the exit code: Python forgets it then.
        if isinstance(error, KeyboardInterrupt) or (error is None and not last_words().strip()):
            return
        import json
        import time
        import traceback

        said = {
            "parent": os.getppid(),
            "rank": os.environ.get("RANK"),
            "at_ns": time.time_ns(),
            "exception": None
            if error is None
            else "".join(traceback.format_exception_only(type(error), error)),
            "stderr": last_words(),
        }
        name = f"{os.getpid()}-{said['at_ns']}.ended"
        with open(os.path.join(parts, name), "w", encoding="utf-8", errors="replace") as file:
            json.dump(
                {key: v[-_MOST_CHARACTERS:] if isinstance(v, str) else v for key, v in said.items()}, file
            )


def _listen_until_the_end() -> None:
    import json

    try:
        parts = json.loads(os.environ["UNSTARVE_LAUNCH"])["parts"]
    except (KeyError, ValueError, TypeError):
        return  # not started by unstarve
    if not parts:
        return  # nothing is recorded
    atexit.register(_leave_last_words, parts, _keep_last_words())


class _AfterImport:
    """Import hook that calls `_attach` once a target module has been executed."""

    def __init__(self) -> None:
        self._targets = {_TORCH, *_RAY}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self._targets or (name in _RAY[1:] and _TORCH in self._targets):
            return None  # without torch there is nothing to watch in Ray
        self._targets.remove(name)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                _attach(name)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]  # of this one loader
        return spec


_delete_marker()
_listen_until_the_end()
sys.meta_path.insert(0, _AfterImport())
_run_users_sitecustomize()
