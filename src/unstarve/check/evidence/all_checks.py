"""Every check of a recorded run, and how they are run."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from unstarve.check.evidence import breakage, device_memory
from unstarve.model import Diagnosis, Run
from unstarve.model.checks import by_harm
from unstarve.model.finding import Finding

EvidenceCheck = Callable[[Run, Diagnosis], Iterable[Finding]]

EVIDENCE: tuple[EvidenceCheck, ...] = (
    breakage.hangs,
    breakage.timeouts,
    breakage.deaths,
    breakage.shared_memory_full,
    device_memory.out_of_memory,
)


def health_of(run: Run, diagnosis: Diagnosis) -> tuple[Finding, ...]:
    """What the run shows to be wrong, the worst first."""
    return tuple(by_harm([found for check in EVIDENCE for found in check(run, diagnosis)]))
