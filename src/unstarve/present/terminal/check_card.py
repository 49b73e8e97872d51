"""The result of `unstarve check` in the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from unstarve.model.check_report import CheckReport
from unstarve.present.check_words import ending, headline, remarks, start_up
from unstarve.present.terminal.finding_list import finding_text
from unstarve.present.terminal.path_text import PathText
from unstarve.present.terminal.screen import for_screen


def print_check(report: CheckReport, console: Console) -> None:
    """Print the headline, the findings, the times of the start and what could not be checked."""
    shown = for_screen(report)
    console.print(PathText(Text(headline(shown), "bold")))
    for found in shown.findings:
        console.print()
        console.print(finding_text(found), highlight=False)
        console.print(Text(found.doc, "bright_black"), soft_wrap=True)
    times = list(start_up(shown))
    if times:
        console.print(Text("\nstart-up", "bold"))
        table = Table.grid(padding=(0, 2))
        for name, value in times:
            table.add_row(name, value)
        console.print(table)
    if (ended := ending(shown)) is not None:
        console.print(PathText(Text(f"\n{ended}", "bright_black")))
    for remark in remarks(shown):
        console.print(PathText(Text(f"\nnote: {remark}", "yellow")))
