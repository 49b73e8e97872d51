"""Read an evaluator's log, DALI's metrics or a run file into a `LoadLog`."""

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
    """Return the batch times in `path`; a LogError names the file and what is wrong with it.

    `phase` chooses between the real and the replayed steps of an `unstarve ideal` run file.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise LogError(f"{path}: no such file") from None
    except OSError as error:
        raise LogError(f"{path}: cannot be read: {error.strerror or error}") from None
    if data.startswith(_RUN_MAGIC) or path.suffix == ".unstarve":
        from unstarve.api import load_log_from_run  # imports the whole analysis

        return load_log_from_run(path, phase)
    try:
        metrics = json.loads(data)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        what = "is empty" if not data.strip() else f"is not JSON ({error})"
        raise LogError(f"{path}: {what}; a log is written by LoaderEvaluator(…, log_file=…)") from None
    return log_from_metrics(metrics, label=str(path))


def log_from_metrics(metrics: Any, *, label: str) -> LoadLog:
    """Return the batch times of ``LoaderEvaluator.get_metrics()``, ours or DALI's; `label` is for errors."""
    if not isinstance(metrics, Mapping):
        raise LogError(f"{label}: a log must be an object with batch_times, got {type(metrics).__name__}")
    _check_schema(metrics.get("schema"), label)
    if metrics and "batch_times" not in metrics:
        raise LogError(f"{label}: no batch_times, so it is not a loader log")
    load_s = _durations(metrics, "batch_times", label)
    if not load_s:
        raise LogError(f"{label}: no batches; it was written before the loader was iterated")
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
        raise LogError(f"{label}: schema is {schema!r}, not {_SCHEMA_NAME}{_SCHEMA_VERSION} (a loader log)")
    version = schema.removeprefix(_SCHEMA_NAME)
    if version != str(_SCHEMA_VERSION):
        raise LogError(f"{label}: log version {version}, but this unstarve reads version {_SCHEMA_VERSION}")


def _durations(metrics: Mapping[str, Any], key: str, label: str) -> tuple[float, ...]:
    values = metrics.get(key, [])
    if not isinstance(values, (list, tuple)) or not all(_is_duration(value) for value in values):
        raise LogError(f"{label}: {key} must be a list of seconds")
    return tuple(float(value) for value in values)


def _is_duration(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf


def _sizes(metrics: Mapping[str, Any], batches: int, label: str) -> tuple[int | None, ...]:
    values = metrics.get("batch_sizes", [])
    fits = isinstance(values, (list, tuple)) and len(values) in (0, batches)
    if not fits or not all(value is None or type(value) is int for value in values):
        raise LogError(f"{label}: batch_sizes must be a list of integers, one per batch")
    return tuple(values)


def _share(value: object, label: str) -> float | None:
    if value is None:
        return None
    if not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise LogError(f"{label}: gpu_busy_share must be a number from 0 to 1")
    return float(value)
