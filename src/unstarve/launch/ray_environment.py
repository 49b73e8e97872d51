"""Ray's side of `unstarve run`: how recording reaches Ray's workers, and what is watched in them.

A cluster that the command starts inherits its environment. One that runs already does not: there the job's
``runtime_env`` carries the settings. On nodes where unstarve or the folder of the run is missing, nothing is
recorded.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from unstarve.launch.patching import Settings, replace
from unstarve.model.launch_settings import VARIABLE

_BOOTSTRAP = Path(__file__).parent / "bootstrap"
_PATH = "PYTHONPATH"
_OF_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""The settings of a submitted job; Ray refuses a variable that both these and ``ray.init`` set."""
_RUNNING = "ray/ray_current_cluster"
"""Where Ray notes the newest cluster of this machine, which ``ray.init()`` joins; in its folder for temporary
files."""

TRAIN_MODULE = "ray.train.v2._internal.execution.worker_group.thread_runner"
DATA_MODULE = "ray.data.iterator"


def attach() -> None:
    """Let ``ray.init`` pass recording on, in a process that has imported Ray."""
    if (ray := sys.modules.get("ray")) is not None:
        replace("Ray", ray, "init", _recording_init)


def _recording_init(original: Callable[..., Any]) -> Callable[..., Any]:
    def init(address: str | None = None, **options: Any) -> Any:
        wanted = address or os.environ.get("RAY_ADDRESS")
        running = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir(), _RUNNING).exists()
        if wanted != "local" and (wanted or running) and os.environ.get(VARIABLE):
            with contextlib.suppress(TypeError, ValueError):  # what Ray refuses, it refuses itself
                options["runtime_env"] = recorded_environment(options.get("runtime_env"))
        return original(address, **options)

    return init


def recorded_environment(runtime_env: Mapping[str, Any] | None) -> dict[str, Any]:
    """A ``runtime_env`` whose processes record themselves as this one does."""
    wanted = dict(runtime_env or {})
    variables = {**(wanted.get("env_vars") or {}), VARIABLE: os.environ[VARIABLE]}
    if f'"{_PATH}"' not in os.environ.get(_OF_JOB, ""):
        variables[_PATH] = f"{_BOOTSTRAP}{os.pathsep}{variables.get(_PATH, '${PYTHONPATH}')}"
    return {**wanted, "env_vars": variables}


def apply_train(_settings: Settings) -> None:
    """Watch Ray Train's thread, in a process that has imported it."""
    runner = getattr(sys.modules.get(TRAIN_MODULE), "ThreadRunner", None)
    if runner is not None:
        replace("Ray Train", runner, "run", _training_in_thread)
        replace("Ray Train", runner, "is_running", _ending_with_thread)


def apply_data(_settings: Settings) -> None:
    """Watch the batches of Ray Data, in a process that has imported it."""
    iterator = getattr(sys.modules.get(DATA_MODULE), "DataIterator", None)
    if iterator is not None:
        replace("Ray Data", iterator, "iter_torch_batches", _watched_batches)


def _training_in_thread(original: Callable[..., None]) -> Callable[..., None]:
    """Wrap the ``run`` of Ray Train's thread runner: the thread that it starts is the one that trains."""

    def run(self: Any, target: Callable[[], Any]) -> None:
        original(self, target)
        with contextlib.suppress(Exception):  # a defect of ours must not cost the user the training
            from unstarve.collect.training_thread import set_training_thread

            thread = getattr(self, "_thread", None)
            if isinstance(thread, threading.Thread):
                set_training_thread(thread.ident)

    return run


def _ending_with_thread(original: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Wrap its ``is_running``: when training has ended, so has the recording. Ray kills the process then."""

    def is_running(self: Any) -> bool:
        running = original(self)
        if not running:
            with contextlib.suppress(Exception):  # see above
                from unstarve.collect.recorder import end_recording

                end_recording()
        return running

    return is_running


def _watched_batches(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``iter_torch_batches`` of a ``DataIterator``: record the waits for its batches."""

    def iter_torch_batches(self: Any, *args: Any, **kwargs: Any) -> Any:
        batches = original(self, *args, **kwargs)
        try:
            from unstarve.collect.loader_origin import creation
            from unstarve.collect.watched import Watched

            return Watched(batches, None, kind="iter_torch_batches", site=creation().origin())
        except Exception:  # see above
            return batches

    return iter_torch_batches
