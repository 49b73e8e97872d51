"""The report as Markdown, for a pull request, an issue or a job summary."""

from __future__ import annotations

import re
from collections.abc import Iterator

from unstarve.model import Advice, Diagnosis, Finding, State
from unstarve.present.gain_text import gain_text
from unstarve.present.shares import budget_title, shares
from unstarve.words import duration, percent, printable, rate, times_interval

_MARKS = {State.STARVED: "🔴", State.TIGHT: "🟡", State.FED: "🟢", State.INCONCLUSIVE: "⚪"}
_SMALLEST_SHARE = 0.005


def markdown(diagnosis: Diagnosis) -> str:
    """The verdict, its evidence, the budget, findings and advice. Names from the data inject no Markdown."""
    return "\n".join(_lines(diagnosis)) + "\n"


def _lines(d: Diagnosis) -> Iterator[str]:
    yield f"### {_MARKS[d.verdict.state]} {d.verdict.state}: {_text(d.verdict.headline)}"
    yield ""
    yield from (f"- {_text(line)}" for line in d.verdict.evidence)
    yield ""
    yield from _numbers(d)
    budget = [share for share in d.budget if share.share >= _SMALLEST_SHARE]
    if budget:
        yield f"| {budget_title(d)} | share | time |"
        yield "|---|--:|--:|"
        yield from (f"| {s.cause} | {percent(s.share)} | {duration(s.seconds)} |" for s in budget)
        yield ""
    if d.outside:
        yield "| outside the measured steps | time |"
        yield "|---|--:|"
        yield from (f"| {part.what} | {duration(part.seconds)} |" for part in d.outside)
        yield ""
    for one in d.health:
        yield from _finding(one)
    for number, advice in enumerate(d.advice, 1):
        yield from _advice(number, advice)
    if d.rejected:
        yield "Considered, but not advised:"
        yield ""
        yield from (f"- {_text(f'{one.what}: {one.why}')}" for one in d.rejected)
        yield ""
    for loader in d.loaders:
        if loader.verdict is not None:
            yield f"#### {_text(loader.verdict.headline)}"
            yield ""
            yield from (f"- {_text(line)}" for line in loader.verdict.evidence)
            yield ""
            for number, advice in enumerate(loader.advice, 1):
                yield from _advice(number, advice)
    yield from (f"> ⚠ {_text(message)}" for message in d.lost)


def _numbers(d: Diagnosis) -> Iterator[str]:
    yield "| | |"
    yield "|---|--:|"
    for label, share in shares(d):
        yield f"| {label} | {'unknown' if share is None else percent(share)} |"
    if d.headroom is not None:
        h = d.headroom
        yield f"| if loading were free ({h.method}) | {times_interval(h.speedup, h.low, h.high, 2)} |"
    if d.throughput.samples_per_s is not None:
        yield f"| samples a second | {rate(d.throughput.samples_per_s)} |"
    if d.throughput.steps_per_s is not None:
        yield f"| steps a second | {rate(d.throughput.steps_per_s)} |"
    yield f"| command | {_code(' '.join(d.command))} |"
    yield ""


def _finding(one: Finding) -> Iterator[str]:
    place = "" if one.where is None else f", {_code(one.where)}"
    yield f"**{one.severity}: {_text(one.id)}**{place}"
    yield ""
    yield _text(f"{one.message} {one.why}")
    yield ""
    yield _text(one.fix) if one.fix.endswith(".") else _code(one.fix)
    yield ""


def _advice(number: int, advice: Advice) -> Iterator[str]:
    told = "" if advice.speedup is None else f" — {gain_text(advice.speedup)}"
    yield f"**{number}. {_text(advice.title)}**{told}"
    yield ""
    yield _text(f"{advice.why}. {advice.note}".strip())
    yield ""
    if advice.code:
        code = printable(advice.code, len(advice.code), lines=True)
        fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", code)), default=0))
        yield f"{fence}python"
        yield code
        yield fence
        yield ""
    if advice.command:
        yield f"{'Or, without' if advice.code else 'Without'} changing your code: {_code(advice.command)}"
        yield ""


def _text(words: str) -> str:
    """One line with the characters escaped that mean something in Markdown or HTML."""
    flat = " ".join(printable(words).split())
    return re.sub(r"([\\`*_\[\]<>|#&~$])", r"\\\1", flat)


def _code(words: str) -> str:
    flat = " ".join(printable(words).split()).replace("|", "\\|")
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", flat)), default=0))
    return f"{fence} {flat} {fence}" if "`" in flat else f"`{flat}`"
