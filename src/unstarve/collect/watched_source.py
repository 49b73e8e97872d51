"""What training iterates instead of a ``DataLoader``, where it is of a library that advice knows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_LINKS = ("root", "source", "source_nodes", "_parents", "_map_parent", "_data_loader")
"""Attributes of a node of torchdata, and of a dataset or iterator of Grain, that hold what it reads from."""
_MOST_PARTS = 100
_LIBRARIES = ("torchdata.nodes.", "grain.")


def source_facts(source: Any) -> dict[str, Any]:
    """``module`` of its class, and ``parallel``: whether threads or processes make its samples, even if one.

    ``parallel`` is absent where that is not known.
    """
    module = library_module(source) or type(source).__module__
    known, counts = False, []
    if module.startswith("torchdata.nodes."):
        known = True
        counts = [
            _field(part, name) for part in _parts(source) for name in ("num_workers", "prefetch_factor")
        ]
    elif module.startswith("grain."):
        for part in _parts(source):
            threads = getattr(_field(part, "_read_options"), "num_threads", None)
            known |= threads is not None
            processes = getattr(_field(part, "_multiprocessing_options"), "num_workers", None)
            counts += [threads, processes, type(part).__name__.startswith("ThreadPrefetch")]
    return {"module": module} | ({"parallel": any(counts)} if known else {})


def makes_its_batches(source: Any) -> bool:
    """Whether the thread that asks for a batch makes it: what it costs can be counted there."""
    return source_facts(source).get("parallel") is False


def library_module(source: Any) -> str | None:
    """The module of its class, or of the first class it is derived from, in torchdata.nodes or Grain."""
    modules = (cls.__module__ for cls in type(source).__mro__)
    return next((module for module in modules if module.startswith(_LIBRARIES)), None)


def _parts(source: Any) -> Iterator[Any]:
    """It and what it reads from."""
    pending, seen = [source], 0
    while pending and seen < _MOST_PARTS:
        part, seen = pending.pop(), seen + 1
        yield part
        for name in _LINKS:
            found = _field(part, name)
            more = found.values() if isinstance(found, Mapping) else found
            several = isinstance(found, (Mapping, tuple, list))
            pending.extend(one for one in (more if several else (more,)) if one is not None)


def _field(part: Any, name: str) -> Any:
    """An attribute of the object itself: nothing of it is computed."""
    return getattr(part, "__dict__", {}).get(name)
