"""The result of `unstarve check` as Markdown, for a pull request or a job summary."""

from __future__ import annotations

from collections.abc import Iterator

from unstarve.model.check_report import CheckReport
from unstarve.model.finding import Finding, Severity
from unstarve.present.check_words import headline, remarks, start_up
from unstarve.present.exports.markdown_text import code_block, inline_code, plain

_MARKS = {Severity.ERROR: "🔴", Severity.WARNING: "🟡", Severity.NOTE: "🔵"}


def check_markdown(report: CheckReport) -> str:
    """The headline, the findings and the times of the start. Names from the data cannot inject Markdown."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: CheckReport) -> Iterator[str]:
    mark = _MARKS[report.findings[0].severity] if report.findings else "🟢"
    yield f"### {mark} {plain(headline(report))}"
    yield ""
    for found in report.findings:
        yield from finding_lines(found)
    times = list(start_up(report))
    if times:
        yield "| start-up | |"
        yield "|---|--:|"
        yield from (f"| {plain(name)} | {plain(value)} |" for name, value in times)
        yield ""
    yield from (f"> ⚠ {plain(remark)}" for remark in remarks(report))


def finding_lines(found: Finding) -> Iterator[str]:
    """One finding. A fix that is no sentence is code."""
    where = "" if found.where is None else f" · {inline_code(found.where)}"
    yield f"{_MARKS[found.severity]} **{found.severity}** {inline_code(found.id)}{where}"
    yield ""
    yield plain(f"{found.message} {found.why}")
    yield ""
    if found.fix.endswith("."):
        yield plain(found.fix)
        yield ""
    else:
        yield from code_block(found.fix)
