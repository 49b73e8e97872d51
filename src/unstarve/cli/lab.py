"""`unstarve lab`: learn it, with exercises that check themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from unstarve.cli.examples import examples
from unstarve.cli.output_files import JsonTo, write_json
from unstarve.labs.all_labs import NAMES, all_labs
from unstarve.labs.judge import judge
from unstarve.labs.started import start as begin
from unstarve.labs.started import started_in
from unstarve.present.terminal.screen import screen
from unstarve.words import printable

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The lab's folder. [default: here]")]


@examples(
    ("List all labs:", "unstarve lab list"),
    ("Find a lab by a word:", "unstarve lab list | grep memory"),
)
def list_labs() -> None:
    """List the labs in the order in which to take them."""
    table = Table.grid(padding=(0, 2))
    for number, lab in enumerate(all_labs(), start=1):
        table.add_row(Text(f"{number}.", justify="right"), Text(lab.name, "bold"), Text(lab.title))
    console = screen()
    console.print(table)
    console.print("\nBegin with: unstarve lab start io-dataloader")


@examples(
    ("Start the first lab in a folder with its name:", "unstarve lab start io-dataloader"),
    ("Start over with a new fault:", "unstarve lab start io-dataloader --force"),
)
def start(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="Which lab; see `unstarve lab list`.", autocompletion=lambda: list(NAMES)
        ),
    ],
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="Where to put it. [default: NAME]")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Start over: replace the lab's files in the folder, draw again.")
    ] = False,
) -> None:
    """Copy a lab into a new folder and draw its fault."""
    if folder is None:
        folder = Path() if force and (Path() / "lab.toml").exists() else Path(name)
    started = begin(name, folder, force=force)
    console = screen()
    console.print(Text(started.lab.title, "bold"))
    console.print(started.lab.goal)
    console.print(printable(f"Read {started.folder / 'README.md'}, and work in that folder."))
    console.print("Stuck? `unstarve lab hint`. Done? `unstarve lab check`.")


@examples(
    ("Get the first hint for the lab in this folder:", "unstarve lab hint"),
    ("Get the third one:", "unstarve lab hint -n 3"),
)
def hint(
    folder: Folder = Path(),
    number: Annotated[
        int, typer.Option("--number", "-n", min=1, metavar="N", help="Which hint; each says more.")
    ] = 1,
) -> None:
    """Give a hint; higher numbers say more."""
    lab = started_in(folder).lab
    at = min(number, len(lab.hints))
    console = screen()
    console.print(Text.assemble((f"hint {at} of {len(lab.hints)}  ", "bold"), lab.hints[at - 1]))
    if at < len(lab.hints):
        console.print(f"The next one: unstarve lab hint -n {at + 1}", style="bright_black")


@examples(
    ("Check the lab in this folder:", "unstarve lab check"),
    ("Check another folder, for a program:", "unstarve lab check io-dataloader --json -"),
)
def check(folder: Folder = Path(), json_to: JsonTo = None) -> None:
    """Check a lab: commit the verdict, then rerun both versions and judge.

    Exit code: 0 if the lab is passed or the verdict was committed, 1 if something is missing.
    """
    started = started_in(folder)
    with screen(stderr=True).status("checking") as status:
        result = judge(started, status.update)
    if json_to is not None:
        write_json(
            json_to,
            {
                "schema": "unstarve.lab/1",
                "lab": started.lab.name,
                "passed": result.passed,
                "committed": result.committed,
                "lines": list(result.lines),
                "measured": result.measured,
            },
        )
    else:
        console = screen()
        mark = ("✓ ", "green") if result.passed or result.committed else ("✗ ", "red")
        for line in result.lines:
            console.print(Text.assemble(mark if line is result.lines[0] else ("  ", ""), printable(line)))
        if result.passed:
            console.print(Text(f"passed: {started.lab.title}", "bold green"))
    raise typer.Exit(0 if result.passed or result.committed else 1)
