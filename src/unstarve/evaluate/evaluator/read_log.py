"""Read back what was measured: an evaluator's log, DALI's metrics or a run file → `LoadLog`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unstarve.errors import LogError
from unstarve.model import LoadLog, Phase

_RUN_MAGIC = b"UNSTARVE"
_SCHEMA_NAME = "unstarve.log/"
_SCHEMA_VERSION = 1


def read_log(path: str | Path, phase: Phase = Phase.REAL) -> LoadLog:
    """The batch times in `path`; a LogError names the file and what is wrong with it.

    `phase` chooses the steps of an `unstarve ideal` run file, which holds real and replayed ones.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise LogError(f"{path}: there is no such file") from None
    except OSError as error:
        raise LogError(f"{path}: cannot be read: {error.strerror or error}") from None
    if data.startswith(_RUN_MAGIC) or path.suffix == ".unstarve":
        from unstarve.api import load_log_from_run  # it brings the whole analysis along

        return load_log_from_run(path, phase)
    try:
        metrics = json.loads(data)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        what = "is empty" if not data.strip() else f"is not JSON ({error})"
        raise LogError(f"{path}: {what}; a log is written by LoaderEvaluator(…, log_file=…)") from None
    return log_from_metrics(metrics, label=str(path))


def log_from_metrics(metrics: Any, *, label: str) -> LoadLog:
    """The batch times of ``LoaderEvaluator.get_metrics()``, ours or DALI's; `label` names them in errors."""
    if not isinstance(metrics, Mapping):
        raise LogError(
            f"{label}: holds a {type(metrics).__name__} where a log holds an object with batch_times"
        )
    _check_schema(metrics.get("schema"), label)
    if metrics and "batch_times" not in metrics:
        raise LogError(f"{label}: has no batch_times, so it is not the log of a loader")
    load_s = _durations(metrics, "batch_times", label)
    if not load_s:
        raise LogError(f"{label}: holds no batches; nothing was iterated before it was written")
    step_s = _durations(metrics, "step_times", label)
    if step_s and len(step_s) != len(load_s) - 1:
        raise LogError(f"{label}: {len(step_s)} step_times do not fit {len(load_s)} batch_times")
    return LoadLog(
        label=label,
        mode=str(metrics.get("mode", "log")),
        load_s=load_s,
        step_s=step_s,
        sizes=_sizes(metrics, len(load_s), label),
        gpu_busy_share=_share(metrics.get("gpu_busy_share"), label),
    )


def _check_schema(schema: object, label: str) -> None:
    if schema is None:
        return  # DALI's metrics have none
    if not isinstance(schema, str) or not schema.startswith(_SCHEMA_NAME):
        raise LogError(f"{label}: is {schema!r}, not the log of a loader ({_SCHEMA_NAME}{_SCHEMA_VERSION})")
    version = schema.removeprefix(_SCHEMA_NAME)
    if version != str(_SCHEMA_VERSION):
        raise LogError(f"{label}: is of version {version}, this unstarve reads version {_SCHEMA_VERSION}")


def _durations(metrics: Mapping[str, Any], key: str, label: str) -> tuple[float, ...]:
    values = metrics.get(key, [])
    if not isinstance(values, (list, tuple)) or not all(_is_duration(value) for value in values):
        raise LogError(f"{label}: {key} is not a list of seconds")
    return tuple(float(value) for value in values)


def _is_duration(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf


def _sizes(metrics: Mapping[str, Any], batches: int, label: str) -> tuple[int | None, ...]:
    values = metrics.get("batch_sizes", [])
    fits = isinstance(values, (list, tuple)) and len(values) in (0, batches)
    if not fits or not all(value is None or type(value) is int for value in values):
        raise LogError(f"{label}: batch_sizes is not a list of whole numbers, one for each batch")
    return tuple(values)


def _share(value: object, label: str) -> float | None:
    if value is None:
        return None
    if not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise LogError(f"{label}: gpu_busy_share is not a number from 0 to 1")
    return float(value)
