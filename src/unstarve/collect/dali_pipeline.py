"""What an iterator of NVIDIA's DALI says of itself: the settings of its pipelines, and its length."""

from __future__ import annotations

from typing import Any

_SETTINGS = ("num_threads", "prefetch_queue_depth", "py_num_workers", "device_id")
THREADS = ("[DALI]", "PrefetchWorker")
"""How the names of DALI's threads begin, which read, decode and transform."""
_BASE = "nvidia.dali.plugin.base_iterator"


def pipelines(loader: Any) -> list[Any] | None:
    """The pipelines of a DALI iterator, one for each GPU that it feeds; None for any other loader."""
    is_dali = any(cls.__module__ == _BASE for cls in type(loader).__mro__)
    found = getattr(loader, "_pipes", None) if is_dali else None
    return found if isinstance(found, list) and found else None


def pipeline_settings(loader: Any) -> dict[str, Any]:
    """Arguments of its first pipeline that matter for its speed; empty for any other loader.

    All pipelines of an iterator do the same. On a pipeline without a GPU, ``device_id`` is absent.
    """
    found = pipelines(loader)
    values = {} if found is None else {name: getattr(found[0], name, None) for name in _SETTINGS}
    return {name: value for name, value in values.items() if isinstance(value, (int, dict))}


def batches_ahead(loader: Any) -> int:
    """Batches that a DALI iterator may have made before they are asked for; 0 for any other loader."""
    depth = pipeline_settings(loader).get("prefetch_queue_depth", 0)
    return max(depth.values(), default=0) if isinstance(depth, dict) else depth


def length_is_unknown(loader: Any) -> bool:
    """Whether it ends when its source does; ``len()`` of it is then 0, or an error."""
    return pipelines(loader) is not None and getattr(loader, "size", 0) < 0
