"""Findings in the terminal: what was seen, why it matters and what to change."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from unstarve.model import Finding, Severity
from unstarve.present.terminal.path_text import PathText

COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}


def finding_list(findings: Sequence[Finding]) -> Group | None:
    """The findings, in the order given; None when there are none."""
    if not findings:
        return None
    return Group(Text("\nhealth", "bold"), *(finding_text(one) for one in findings))


def finding_text(one: Finding) -> Group:
    """One finding."""
    title = Text(f"{one.severity} ", COLOURS[one.severity]) + Text(one.id, "bold")
    if one.where is not None:
        title += Text(f"  {one.where}", "bright_black")
    lines: list[RenderableType] = [PathText(title), PathText(Text(one.message)), PathText(Text(one.why))]
    lines.append(Padding(Text(one.fix, "cyan", overflow="fold"), (0, 0, 0, 2)))
    return Group(*lines)
