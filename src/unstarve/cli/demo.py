"""`unstarve demo`: slow loader → verdict → measured headroom → fixed loader → proof, in under a minute."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from unstarve import api
from unstarve.cli.examples import examples
from unstarve.cli.recording import Request, leave, record
from unstarve.errors import MissingExtraError
from unstarve.model import Diagnosis
from unstarve.model.launch_settings import IdealSettings
from unstarve.present.terminal.report_card import print_comparison, print_report
from unstarve.present.terminal.screen import screen
from unstarve.words import printable

_EPOCHS = 4
_IDEAL = IdealSettings(pairs=4, block_steps=10)
_IDEAL_EPOCHS = 20
"""More than the measurement needs; it ends the training itself."""


@examples(
    ("See it work:", "unstarve demo"),
    ("Put the demo's files elsewhere:", "unstarve demo --folder /tmp/unstarve-demo"),
)
def demo(
    folder: Annotated[
        Path, typer.Option("--folder", metavar="DIR", help="Folder for data, run files and the figure.")
    ] = Path("unstarve-demo"),
) -> None:
    """See it work: a slow loader, its verdict, the measured headroom, the fix and the proof."""
    from unstarve.demo.task import IMAGES, make_files

    console = screen()
    console.print(Text.assemble(("unstarve demo", "bold"), printable(f" · files go to {folder}/")))
    with console.status(f"writing {IMAGES} image files"):
        make_files(folder / "images")
    for script in ("slow.py", "fast.py"):
        (folder / script).write_text((files("unstarve.demo") / script).read_text())

    _title(console, 1, "`unstarve run`: a training with common mistakes")
    slow = _record(folder, "slow", "slow.py")
    print_report(slow, console)

    _title(console, 2, "`unstarve ideal`: how fast is it if loading is free?")
    ideal = _record(folder, "ideal", "slow.py", _IDEAL)
    console.print(ideal.verdict.headline, style="bold", highlight=False)

    _title(console, 3, "`unstarve run`: the same training, mistakes fixed")
    fast = _record(folder, "fast", "fast.py")
    console.print(fast.verdict.headline, style="bold", highlight=False)

    _title(console, 4, "`unstarve compare`: before (A) and after (B)")
    print_comparison(api.compare(slow.path, fast.path), console)
    _say_where(console, folder, _figure(folder))


def _record(folder: Path, name: str, script: str, ideal: IdealSettings | None = None) -> Diagnosis:
    """Run one of the demo's scripts and diagnose it; a script that fails ends the demo."""
    epochs = _EPOCHS if ideal is None else _IDEAL_EPOCHS
    command = [str(folder / script), str(folder / "images"), str(epochs)]
    kind = "run" if ideal is None else "ideal"
    output = folder / f"{name}.unstarve"
    request = Request(command, kind, output=output, quiet=True, force=True, ideal=ideal)
    run_path, exit_code = record(request)
    if exit_code:
        leave(exit_code)
    return api.diagnose(api.load_run(run_path))


def _figure(folder: Path) -> Path | None:
    from unstarve.evaluate.evaluator.plot_comparison import plot_comparison

    output = folder / "comparison.png"
    try:
        plot_comparison(
            real_log=folder / "ideal.unstarve", ideal_log=folder / "ideal.unstarve", output=output
        )
    except MissingExtraError:
        return None
    return output


def _say_where(console: Console, folder: Path, figure: Path | None) -> None:
    console.print()
    console.print(f"scripts   {folder}/slow.py and fast.py: read them side by side", highlight=False)
    console.print("run files", *sorted(str(path) for path in folder.glob("*.unstarve")), highlight=False)
    missing = "not drawn: pip install 'unstarve[plot]'"
    console.print(f"figure    {figure if figure is not None else missing}", highlight=False)
    console.print("next      unstarve run YOUR_SCRIPT.py", highlight=False)


def _title(console: Console, number: int, text: str) -> None:
    console.print()
    console.print(Rule(f"{number} · {text}", align="left", style="bright_black"))
