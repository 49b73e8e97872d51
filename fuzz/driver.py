"""Runs inputs of a target, keeps those that are findings, makes them smaller, and counts."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from fuzz import CORPUS, ROOT
from fuzz.changes import bytes_changed
from fuzz.runner import Outcome, Runner
from fuzz.targets import known_attacks, load

_CHANGED = "input"
_TRIES = 60
_TRIES_WITH_RESTART = 6


@dataclass
class Tally:
    """What came of one target's inputs."""

    name: str
    inputs: int = 0
    refused: int = 0
    slowest_s: float = 0.0
    largest_bytes: int = 0
    findings: dict[str, Path] = field(default_factory=dict)
    """The first input of each kind of finding."""


@dataclass(frozen=True)
class Effort:
    """How long to go on: a number of changed inputs, or seconds."""

    inputs: int | None
    seconds: float


def fuzz(name: str, runner: Runner, effort: Effort, seed: int, keep: Path, tally: Tally) -> None:
    """Run the known attacks of a target, then changed inputs; findings go to files in `keep`."""
    deadline = time.monotonic() + effort.seconds
    for number, (origin, data) in enumerate(inputs(name, seed)):
        if time.monotonic() >= deadline if effort.inputs is None else number >= effort.inputs:
            break
        outcome = runner.outcome(name, data)
        tally.inputs += 1
        tally.refused += outcome.refused is not None
        tally.slowest_s = max(tally.slowest_s, outcome.cpu_s)
        tally.largest_bytes = max(tally.largest_bytes, outcome.bytes)
        if outcome.finding is not None and outcome.finding not in tally.findings:
            tally.findings[outcome.finding] = _keep(name, runner, data, outcome, origin, keep)
            print(f"{tally.name}: {outcome.finding} ({origin})", flush=True)


def inputs(name: str, seed: int) -> Iterator[tuple[str, bytes]]:
    """Seeds and known attacks as they are, then changed ones without end; each depends on its number only."""
    target = load(name)
    seeds, attacks = target.seeds(), known_attacks(name)
    yield from ((f"seed {number}", data) for number, data in enumerate(seeds))
    yield from attacks.items()
    small = [data for data in attacks.values() if len(data) <= 20_000]
    number = 0
    while True:
        random = Random(f"{seed} {name} {number}")
        data, other = random.choice(seeds), random.choice(seeds)
        if small and random.random() < 0.2:
            data = random.choice(small)
        for _ in range(random.randint(1, 3)):
            along = random.random() < 0.7
            data = target.changed(data, random) if along else bytes_changed(data, other, random)
        yield f"{_CHANGED} {number} of seed {seed}", data
        number += 1


def _keep(name: str, runner: Runner, data: bytes, outcome: Outcome, origin: str, keep: Path) -> Path:
    small = minimized(name, runner, data, outcome) if origin.startswith(_CHANGED) else data
    keep.mkdir(parents=True, exist_ok=True)
    file = keep / f"{name}-{hashlib.sha256(small).hexdigest()[:12]}"
    file.write_bytes(small)
    file.with_name(f"{file.name}.txt").write_text(f"{outcome.finding}\n{origin}\n\n{outcome.detail}\n")
    return file


def minimized(name: str, runner: Runner, data: bytes, outcome: Outcome) -> bytes:
    """A shorter input with the same finding, if a few tries show one."""
    tries = _TRIES if outcome.bytes or outcome.cpu_s else _TRIES_WITH_RESTART
    piece = len(data) // 2
    while tries > 0 and piece > 0:
        at = 0
        while at < len(data) and tries > 0:
            shorter = data[:at] + data[at + piece :]
            tries -= 1
            if runner.outcome(name, shorter).finding == outcome.finding:
                data = shorter
            else:
                at += piece
        piece //= 2
    return data


def table(tallies: list[Tally]) -> str:
    """One line for each target."""
    lines = [f"{'target':20} {'inputs':>8} {'refused':>8} {'findings':>8} {'slowest':>9} {'memory':>9}"]
    for t in tallies:
        share = f"{t.refused / max(t.inputs, 1):.0%}" if t.slowest_s else "–"
        slowest = f"{t.slowest_s:.2f} s" if t.slowest_s else "–"
        memory = f"{t.largest_bytes / (1 << 20):.0f} MB" if t.slowest_s else "–"
        lines.append(f"{t.name:20} {t.inputs:8} {share:>8} {len(t.findings):8} {slowest:>9} {memory:>9}")
    for t in tallies:
        lines += [f"{t.name}: {finding}\n    {_shown(file)}" for finding, file in t.findings.items()]
    if any(t.findings for t in tallies):
        lines.append(f"When it is mended, its input goes into {_shown(CORPUS)}/TARGET/ as a test.")
    return "\n".join(lines)


def _shown(path: Path) -> Path:
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
