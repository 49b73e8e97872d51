"""The report as Markdown, for a pull request, an issue or a job summary."""

from __future__ import annotations

from collections.abc import Iterator

from unstarve.model import Advice, Diagnosis, State
from unstarve.present.exports.check_markdown import finding_lines
from unstarve.present.exports.markdown_text import code_block, inline_code, plain
from unstarve.present.gain_text import gain_text
from unstarve.present.shares import budget_title, shares
from unstarve.words import duration, percent, rate, times_interval

_MARKS = {State.STARVED: "🔴", State.TIGHT: "🟡", State.FED: "🟢", State.INCONCLUSIVE: "⚪"}
_SMALLEST_SHARE = 0.005


def markdown(diagnosis: Diagnosis) -> str:
    """The verdict, its evidence, the budget, findings and advice. Names from the data inject no Markdown."""
    return "\n".join(_lines(diagnosis)) + "\n"


def _lines(d: Diagnosis) -> Iterator[str]:
    yield f"### {_MARKS[d.verdict.state]} {d.verdict.state}: {plain(d.verdict.headline)}"
    yield ""
    yield from (f"- {plain(line)}" for line in d.verdict.evidence)
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
    for found in d.health:
        yield from finding_lines(found)
    for number, advice in enumerate(d.advice, 1):
        yield from _advice(number, advice)
    if d.rejected:
        yield "Considered, but not advised:"
        yield ""
        yield from (f"- {plain(f'{one.what}: {one.why}')}" for one in d.rejected)
        yield ""
    for loader in d.loaders:
        if loader.verdict is not None:
            yield f"#### {plain(loader.verdict.headline)}"
            yield ""
            yield from (f"- {plain(line)}" for line in loader.verdict.evidence)
            yield ""
            for number, advice in enumerate(loader.advice, 1):
                yield from _advice(number, advice)
    yield from (f"> ⚠ {plain(message)}" for message in d.lost)


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
    yield f"| command | {inline_code(' '.join(d.command))} |"
    yield ""


def _advice(number: int, advice: Advice) -> Iterator[str]:
    told = "" if advice.speedup is None else f" — {gain_text(advice.speedup)}"
    yield f"**{number}. {plain(advice.title)}**{told}"
    yield ""
    yield plain(f"{advice.why}. {advice.note}".strip())
    yield ""
    if advice.code:
        yield from code_block(advice.code)
    if advice.command:
        without = "Or, without" if advice.code else "Without"
        yield f"{without} changing your code: {inline_code(advice.command)}"
        yield ""
