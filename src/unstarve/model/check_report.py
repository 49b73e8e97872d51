"""What `unstarve check` found in one target, and what it looked at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from unstarve.model.checks import by_harm
from unstarve.model.finding import Finding, Severity


@dataclass(frozen=True, slots=True)
class CheckedLoader:
    """A loader that was checked, and how long it took to start."""

    name: str
    file: str | None = None
    """Where it was created, as the user would write it."""
    line: int | None = None
    dataset: str | None = None
    """Class of its dataset."""
    workers: int = 0
    batches: int = 0
    """Batches that the checks looked at."""
    pickled_bytes: int | None = None
    """What each worker is sent when it starts; None where workers are forked, or there are none."""
    pickle_s: float | None = None
    first_batch_s: float | None = None
    """From the beginning of the epoch to its first batch."""
    problem: str | None = None
    """Why its batches could not be read, in a sentence."""

    @property
    def where(self) -> str | None:
        """``train.py:41``."""
        return self.file if self.file is None or self.line is None else f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The findings about a target, the worst first, and what was looked at."""

    target: str
    findings: tuple[Finding, ...] = ()
    loaders: tuple[CheckedLoader, ...] = ()
    checks: int = 0
    """Checks that looked at each loader, or at the files."""
    import_s: float | None = None
    """From the start of the process until torch was imported."""
    build_s: float | None = None
    """From there to the first loader: further imports, datasets, the model."""
    problems: tuple[str, ...] = ()
    """What could not be checked, and why: a sentence each."""
    stopped_at: str | None = None
    """Name of the loader whose batches were waited for; None if the script ended by itself."""
    files: int | None = None
    """Files that were read; None where a target was run."""

    def count(self, severity: Severity) -> int:
        """How many findings are of this severity."""
        return sum(found.severity is severity for found in self.findings)

    def at_least(self, severity: Severity | None) -> bool:
        """Whether there is a finding of this severity or a worse one; None asks for none."""
        return severity is not None and any(one.severity.rank <= severity.rank for one in self.findings)

    def to_plain(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def report_from_plain(plain: Mapping[str, Any]) -> CheckReport:
    """The report that `CheckReport.to_plain` has written."""
    fields = dict(plain)
    findings = tuple(
        Finding(**{**one, "severity": Severity(one["severity"])}) for one in fields.pop("findings")
    )
    loaders = tuple(CheckedLoader(**one) for one in fields.pop("loaders"))
    return CheckReport(
        **{**fields, "problems": tuple(fields["problems"])}, findings=findings, loaders=loaders
    )


def _identity(loader: CheckedLoader) -> tuple[object, ...]:
    """Equal for loaders that are not worth listing apart: of several ranks, or created again and again."""
    return loader.name, loader.where, loader.dataset, loader.workers, loader.problem


def merged(target: str, reports: Iterable[CheckReport]) -> CheckReport:
    """One report for all processes of a command: what was found again is listed once."""
    whole = CheckReport(target)
    for report in reports:
        seen = {(found.id, found.where) for found in whole.findings}
        loaders: dict[tuple[object, ...], CheckedLoader] = {}
        for loader in (*whole.loaders, *report.loaders):
            loaders.setdefault(_identity(loader), loader)
        new = tuple(found for found in report.findings if (found.id, found.where) not in seen)
        whole = replace(
            whole,
            findings=whole.findings + tuple(dict.fromkeys(new)),
            loaders=tuple(loaders.values()),
            checks=max(whole.checks, report.checks),
            import_s=report.import_s if whole.import_s is None else whole.import_s,
            build_s=report.build_s if whole.build_s is None else whole.build_s,
            problems=tuple(dict.fromkeys(whole.problems + report.problems)),
            stopped_at=whole.stopped_at or report.stopped_at,
        )
    return replace(whole, findings=tuple(by_harm(list(whole.findings))))
