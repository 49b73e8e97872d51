"""`unstarve tune` in the terminal: a line per trial while it runs, then the answer and a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from unstarve.model import LoaderSettings, Trial
from unstarve.model.parts import CACHED, GATHER, GPU_IMAGES, IMAGES, RING, THREADS
from unstarve.model.tune_run import SettingSummary, TunedLoader, TuneRun
from unstarve.present.terminal.screen import for_screen
from unstarve.words import counted, duration, interval, percent, printable, rate, size, times

_WIDE = 78
"""Terminal width from which a trial's line has a bar."""
_COLUMNS = ("workers", "prefetch", "samples/s", "range", "wait", "memory", "vs. now")
_FEWER_COLUMNS = ("workers", "prefetch", "samples/s", "vs. now")
_BAR = 20


_RERUNS = 3
"""How often to start a command again that ends too early, and how many times as often the next time."""
_UNFINISHED = {
    "budget": "the budget was spent before tuning was done: give it more",
    "interrupt": "interrupted before tuning was done",
}


@dataclass(frozen=True)
class _PartWords:
    """A part of unstarve, as the result names it."""

    mark: str
    """In the table, …"""
    legend: str
    """… and what it means."""
    line: str
    """After a trial."""
    code: str
    """Before the arguments."""
    same: str
    """What stays the same, if it is chosen."""


_PARTS = {
    IMAGES: _PartWords(
        "*",
        "threads instead of worker processes: unstarve reads the images",
        "unstarve reads images",
        "ImageFolderDataset in unstarve.DataLoader",
        "unstarve reads the images: same files, order and targets; pixels differ slightly, as between any two"
        " JPEG decoders, and random crops use other random numbers",
    ),
    GPU_IMAGES: _PartWords(
        "¤",
        "threads instead of worker processes: unstarve reads the images, the GPU decodes them",
        "GPU decodes images",
        'ImageFolderDataset(…, decode="cuda") in unstarve.DataLoader',
        "the GPU decodes the images: same files, order and targets; colours at sharp edges differ slightly,"
        " and random crops use other random numbers; batches were copied back to the CPU"
        ' here, where your loop expects them: with decode="cuda" in your source they stay on the GPU, which'
        " is faster still",
    ),
    RING: _PartWords(
        "°",
        "workers of unstarve's engine ring",
        "engine ring",
        "unstarve.DataLoader",
        "the same batches: worker processes hand them over in reused shared memory",
    ),
    THREADS: _PartWords(
        "‡",
        "threads of unstarve's engine threads instead of worker processes",
        "engine threads",
        "unstarve.DataLoader",
        "the same batches, read by threads of the training process",
    ),
    GATHER: _PartWords(
        "§",
        "unstarve's engine gather: rows are copied without workers",
        "engine gather",
        "unstarve.DataLoader",
        "the same batches: the samples are rows in memory, and a batch is one copy of its rows;"
        " unstarve.DataLoader draws and copies them faster still than was measured here",
    ),
    CACHED: _PartWords(
        "†",
        "CachedDataset, once an epoch has filled it",
        "CachedDataset",
        "CachedDataset",
        "the same batches: the first epoch fetches the samples and keeps them in memory, later ones take them"
        " from there; data that changes while training runs would not be seen",
    ),
}


def as_arguments(settings: LoaderSettings) -> str:
    """As written in a call: ``num_workers=8, prefetch_factor=4``."""
    depth = "" if settings.prefetch_factor is None else f", prefetch_factor={settings.prefetch_factor}"
    part = f"{_PARTS[settings.part].code}, " if settings.part else ""
    return f"{part}num_workers={settings.num_workers}{depth}"


def trial_line(name: str, trial: Trial, best_per_s: float, width: int) -> Text:
    """A finished trial; the bar compares it with the fastest so far."""
    filled = round(_BAR * min(trial.samples_per_s / best_per_s, 1.0)) if best_per_s > 0 else 0
    settings = trial.settings
    depth = "" if settings.prefetch_factor is None else f" × {settings.prefetch_factor} ahead"
    tried = f"{settings.in_flight} batches ahead" if settings.shared else f"{_makers(settings)}{depth}"
    wait = "" if trial.wait_share is None else f", waiting {percent(trial.wait_share)}"
    line = Text("unstarve: ", "bright_black") + Text(f"{printable(name)}  {tried:<22}")
    if width >= _WIDE:
        line += Text("█" * filled, "blue") + Text("░" * (_BAR - filled), "bright_black")
    line += Text(f" {rate(trial.samples_per_s)} samples/s{wait}")
    part = f" ({_PARTS[settings.part].line})" if settings.part else ""
    return line + Text(part, "bright_black")


def _makers(settings: LoaderSettings) -> str:
    kind = "thread" if settings.threads else "worker"
    return f"{settings.num_workers} {kind}{'' if settings.num_workers == 1 else 's'}"


def print_tuning(run: TuneRun, tables: Sequence[Sequence[SettingSummary]], console: Console) -> None:
    """Print the result; `tables` has the tried settings of each tuned loader."""
    run = for_screen(run)
    if not run.tuned:
        console.print(_nothing(run))
    for loader, lines in zip(run.tuned, tables, strict=True):
        console.print(_card(loader, run))
        if lines:
            console.print(Padding(_table(lines, console), (0, 1)))
        used = {line.settings.part for line in lines}
        legend = [f"{words.mark} {words.legend}" for part, words in _PARTS.items() if part in used]
        if any(line.unproven for line in lines):
            legend.append("not proven: faster, but not by more than the noise, or than a change is worth")
        if legend:
            console.print(Padding(Text("\n".join(legend), "bright_black"), (0, 1, 1, 1)))
    for loader in run.loaders:
        if loader.tuning is None and loader.left_alone is not None:
            console.print(Text(f"· {_title(loader)}: {loader.left_alone}: left alone", "bright_black"))
    console.print(_footer(run))


def headline(loader: TunedLoader) -> str:
    """The answer, in one sentence."""
    tuning = loader.tuning
    assert tuning is not None
    if not loader.was_measured:
        return "Training ended before any setting was measured."
    measured = {one.settings for one in tuning.trials if one.kind == "measured"}
    if tuning.keep and not tuning.settled:
        return f"Too little was measured to tell: {as_arguments(tuning.before)} stays."
    if tuning.keep and measured == {tuning.before}:
        return f"Keep {as_arguments(tuning.before)}: {tuning.reason}."
    if tuning.keep:
        return f"No better setting: {tuning.reason}. Keep {as_arguments(tuning.before)}."
    gain, chosen = tuning.gain, as_arguments(tuning.chosen)
    if gain is None:
        return f"{chosen}: {tuning.reason}."
    faster = f"{times(gain.ratio, 2)} {interval(gain.low, gain.high, 2)}"
    if tuning.is_predicted:
        return f"{faster} predicted, not proven: {chosen}."
    return f"{faster} proven over {counted(tuning.proven_steps, 'step')}: {chosen}."


def _title(loader: TunedLoader) -> str:
    where = "" if loader.tuning is None or loader.tuning.where is None else f" ({loader.tuning.where})"
    return f"{loader.name}{where}"


def _card(loader: TunedLoader, run: TuneRun) -> Panel:
    tuning = loader.tuning
    assert tuning is not None
    colour = "cyan" if not tuning.settled else "green" if not tuning.keep else "blue"
    lines: list[RenderableType] = [Text(headline(loader), "bold")]
    if not tuning.keep:
        lines.append(Text(f"· now: {as_arguments(tuning.before)}"))
    if tuning.chosen.part:
        lines.append(Text(f"· {_PARTS[tuning.chosen.part].same}"))
    if not tuning.settled:
        longer = f"run more steps, or use --rerun {_RERUNS * max(run.runs - 1, 1)}"
        ended_first = f"training ended before tuning did: {longer}"
        lines.append(Text(f"· {_UNFINISHED.get(run.ended_by or '', ended_first)}"))
    lines += [Text(f"· {note}") for note in tuning.notes]
    title = Text(f" {_title(loader)} ", "bold")
    return Panel(Group(*lines), title=title, title_align="left", border_style=colour, box=box.ROUNDED)


def _table(lines: Sequence[SettingSummary], console: Console) -> Table:
    """All columns if they fit, closer together if necessary; else the most important ones."""
    unlimited = console.options.update(max_width=1000)
    for columns, apart in ((_COLUMNS, 1), (_COLUMNS, 0), (_FEWER_COLUMNS, 1)):
        table = _with_columns(lines, columns, apart)
        if Measurement.get(console, unlimited, table).maximum <= console.width - 2:
            break
    return table


def _with_columns(lines: Sequence[SettingSummary], shown: Sequence[str], apart: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, padding=(0, apart))
    for name in shown:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for line in lines:
        depth = line.settings.prefetch_factor
        mark = _PARTS[line.settings.part].mark if line.settings.part else ""
        memory = 0 if line.rss_bytes is None else line.rss_bytes + (line.shm_bytes or 0)
        cells = {
            "workers": f"{line.settings.num_workers}{mark}",
            "prefetch": "–" if depth is None else str(depth),
            "samples/s": rate(line.samples_per_s),
            "range": f"{rate(line.low)}–{rate(line.high)}",
            "wait": "–" if line.wait_share is None else percent(line.wait_share),
            "memory": size(memory) if memory else "–",
            "vs. now": "–" if line.speedup is None else times(line.speedup, 2),
        }
        style = "bold" if line.chosen else ""
        words = (
            ("now", line.own),
            ("best", line.chosen),
            ("predicted", line.times == 0),
            ("not proven", line.unproven),
        )
        remarks = ", ".join(word for word, holds in words if holds)
        table.add_row(*(cells[name] for name in shown), remarks, style=style)
    return table


def _nothing(run: TuneRun) -> Text:
    if not run.loaders and run.ended_by == "interrupt":
        return Text("Nothing was tuned: interrupted before the command iterated a DataLoader.", "bold")
    if not run.loaders:
        return Text(
            "Nothing was tuned: the command iterated no torch DataLoader, or only classes with their own "
            "way of iterating.",
            "bold",
        )
    return Text("Nothing was tuned.", "bold")


def _footer(run: TuneRun) -> Text:
    how = {
        "settled": "stopped when tuning was done",
        "budget": "stopped when the budget was spent",
        "interrupt": "interrupted",
    }
    steps = sum(loader.steps for loader in run.loaders)
    last = f" in the last of {run.runs} runs" if run.runs > 1 else ""
    parts = [
        f"{duration(run.seconds)}, {counted(steps, 'step')}{last}",
        how.get(run.ended_by or "", f"exit code {run.exit_code}"),
    ]
    if run.ranks > 1:
        parts.append(f"{run.ranks} ranks, the first one is shown")
    return Text(" · ".join(parts), "bright_black")
