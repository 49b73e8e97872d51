"""What a prediction had to assume, in sentences."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean

from unstarve.model import Forecast
from unstarve.predict.demand import Demands

_WORTH_TELLING = 0.1
_POOR_FIT = 0.15
_FEW_BATCHES = 40


def notes_of(demands: Demands, misfit: float, curve: Iterable[Forecast]) -> tuple[str, ...]:
    """What the reader should know about these forecasts."""
    forecasts = list(curve)
    notes = []
    if not demands.workers and any(one.setting.workers for one in forecasts):
        notes.append("recorded without workers: what handing batches over costs is estimated from their size")
    made_s = fmean(w.cpu_s + w.collate_s + w.blocked_s + w.disk_s for w in demands.works)
    if fmean(w.disk_s for w in demands.works) > _WORTH_TELLING * made_s:
        notes.append(
            "how well the disk serves several workers at once is not known: the intervals allow for it"
        )
    if demands.waits_together:
        notes.append("batches wait for locks or pipes that workers share: more workers are taken not to help")
    if len({one.setting.batch_size for one in forecasts}) > 1:
        notes.append("a step is taken to grow with its batch; the intervals allow for one that does not")
    if demands.crowd.hungry > _WORTH_TELLING:
        notes.append("other processes wanted the same cores meanwhile, and are taken to go on so")
    if misfit > _POOR_FIT:
        notes.append("the model explains the recorded run poorly; the intervals are wider for it")
    if len(demands.works) < _FEW_BATCHES:
        notes.append(f"only {len(demands.works)} batches were measured")
    return tuple(notes)
