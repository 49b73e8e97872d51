"""Every check of a recorded run, and how they are run."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from unstarve.check.evidence import samples
from unstarve.model import Diagnosis, Run
from unstarve.model.checks import by_harm
from unstarve.model.finding import Finding

EvidenceCheck = Callable[[Run, Diagnosis], Iterable[Finding]]

EVIDENCE: tuple[EvidenceCheck, ...] = (
    samples.set_epoch_missed,
    samples.same_order,
    samples.ranks_not_split,
    samples.dropped_by_collate,
    samples.worker_seeds_equal,
    samples.repeated_samples,
)


def health_of(run: Run, diagnosis: Diagnosis) -> tuple[Finding, ...]:
    """What the run shows to be wrong, the worst first."""
    return tuple(by_harm([found for check in EVIDENCE for found in check(run, diagnosis)]))
