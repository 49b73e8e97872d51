"""The demand of an imaginary loader, and a forecaster for a synthetic diagnosis."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from unstarve.model import Demand, Diagnosis
from unstarve.predict.demand import BatchDemand, LoaderDemand
from unstarve.predict.forecast import LoaderModel, model_loader, what_if
from unstarve.predict.recorded_run import EpochCosts, RecordedMachine

_FEW_DRAWS = 3
_LATE_EVERY = 12
WORKERS = (0, 1, 2, 3, 4, 8, 16, 32)


def demands(
    batches: Sequence[BatchDemand] | BatchDemand,
    workers: int = 1,
    *,
    cores: float = 4.0,
    period_s: float | None = None,
    config: Mapping[str, Any] | None = None,
    slowdown: float = 1.0,
    foreign: float | None = 0.0,
    epochs: EpochCosts | None = None,
    **more: Any,
) -> LoaderDemand:
    """As if recorded; where `period_s` is not given, the run went as the model has it."""
    given = (batches,) * 24 if isinstance(batches, BatchDemand) else tuple(batches)
    fields: dict[str, Any] = {
        "loader": "train", "config": {"num_workers": workers, "batch_size": 8} | dict(config or {}),
        "workers": workers, "batches": given, "samples": 8.0, "nbytes": 2048.0, "tensors": 1, "memory_s": 0.0,
        "pinned": bool((config or {}).get("pin_memory")),
        "collate_memory_s": 0.0, "read_bytes": None, "readers": 1.0,
        "period_s": period_s or 1.0, "wait_share": 1.0,
        "machine": RecordedMachine(cores, foreign, False, 1.0, slowdown), "epochs": epochs,
        "waits_together": False,
    }  # fmt: skip
    made = LoaderDemand(**(fields | more))
    if period_s is None:
        made = dataclasses.replace(made, period_s=model_loader(made).recorded[0].period_s)
    return made


def with_forecaster(d: Diagnosis, *, waits_together: bool = False) -> Diagnosis:
    """The same diagnosis with a forecaster: the recorded demand, batch by batch, in the recorded loader."""
    if d.demand is None or d.throughput.steps_per_s is None or d.headroom is None or not d.loaders:
        return d
    step_s = 1 / d.throughput.steps_per_s
    limits = [float(d.system[key]) for key in ("cores", "quota_cores") if d.system.get(key)]
    epochs = d.loaders[0].epochs
    made = demands(
        _uneven(d.demand, step_s / d.headroom.speedup),
        d.demand.workers,
        cores=min(limits, default=1.0),
        period_s=step_s,
        config=d.loaders[0].config,
        slowdown=1 + d.demand.queued_s / d.demand.cpu_s if d.demand.cpu_s else 1.0,
        foreign=None,
        wait_share=1 - 1 / d.headroom.speedup,
        epochs=EpochCosts(d.steps // epochs, epochs / d.steps, 0.2, 0.2, 0.1, 0.0) if epochs > 1 else None,
        waits_together=waits_together,
    )
    full = model_loader(made)
    quick = LoaderModel(full.demand, full.draws[:_FEW_DRAWS], full.recorded[:_FEW_DRAWS])
    return dataclasses.replace(d, forecaster=quick, whatif=what_if(quick, WORKERS))


def _uneven(demand: Demand, step_s: float) -> list[BatchDemand]:
    """Batches of which one in twelve is slow; their mean is the recorded one."""
    tail = max(demand.tail, 1.0)
    quick = _LATE_EVERY / (_LATE_EVERY - 1 + tail)
    works = []
    for number in range(2 * _LATE_EVERY):
        factor = quick * (tail if number % _LATE_EVERY == 5 else 1.0)
        works.append(
            BatchDemand(
                cpu_s=demand.cpu_s * factor,
                collate_s=demand.collate_s * factor,
                blocked_s=demand.remote_s * factor,
                disk_s=demand.disk_s * factor,
                send_s=demand.handoff_s / 2,
                index_s=demand.sampler_s,
                take_s=demand.handoff_s / 2,
                pin_s=demand.pin_s,
                step_delay_s=step_s,
            )
        )
    return works
