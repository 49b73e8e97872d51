"""A benchmark as JSON, schema ``unstarve.bench/1``: the contract for programs."""

from __future__ import annotations

import dataclasses
from typing import Any

from unstarve.model import Benchmark

SCHEMA = "unstarve.bench/1"


def bench(result: Benchmark) -> dict[str, Any]:
    """All that was measured; what is not known is null."""
    return {
        "schema": SCHEMA,
        "started_at": result.started_at,
        "wall_s": result.wall_s,
        "seeds": list(result.seeds),
        "quick": result.quick,
        "interrupted": result.interrupted,
        "machine": dict(result.machine),
        "versions": dict(result.versions),
        "parts": [
            {
                "part": part.letter,
                "name": part.name,
                "title": part.title,
                "batch_samples": part.batch_samples,
                "ways": [_way(dataclasses.asdict(way)) for way in part.ways],
            }
            for part in result.parts
        ],
    }


def _way(way: dict[str, Any]) -> dict[str, Any]:
    bars = [
        {
            "promise": one["bar"]["promise"],
            "limit": one["bar"]["limit"],
            "measured": one["measured"],
            "met": one["met"],
        }
        for one in way.pop("checked")
    ]
    memory = way.pop("extra")
    return way | {"batch_s": list(way["batch_s"]), "memory": memory, "bars": bars}
