"""Every check of a recorded run, and how they are run."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from unstarve.check.evidence.device_memory import device_memory_growth
from unstarve.check.evidence.memory import memory_growth
from unstarve.check.evidence.watermarks import descriptor_watermark, shared_memory_watermark
from unstarve.model import Diagnosis, Run
from unstarve.model.checks import by_harm
from unstarve.model.finding import Finding

EvidenceCheck = Callable[[Run, Diagnosis], Iterable[Finding]]

EVIDENCE: tuple[EvidenceCheck, ...] = (
    memory_growth,
    device_memory_growth,
    shared_memory_watermark,
    descriptor_watermark,
)


def health_of(run: Run, diagnosis: Diagnosis) -> tuple[Finding, ...]:
    """What the run shows to be wrong, the worst first."""
    return tuple(by_harm([found for check in EVIDENCE for found in check(run, diagnosis)]))
