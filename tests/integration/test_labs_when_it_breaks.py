"""The trainings of the lab "When it breaks": each breaks as it should, and the worked fix mends it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from lab_solutions import SOLUTIONS

from unstarve.labs.all_labs import lab_named
from unstarve.labs.harness_process import told_by
from unstarve.labs.specs.when_it_breaks import drawn_kinds, trouble
from unstarve.labs.started import start

BROKEN = {
    "fork-after-threads": "failed: TimeoutError: it was not done after 5 seconds",
    "worker-timeout": "failed: RuntimeError: DataLoader timed out after 1 seconds",
    "out-of-memory": "Unable to allocate",
    "growing-cache": "more at the end than after its first epoch",
    "kept-batches": "more at the end than after its first epoch",
    "shared-memory": "failed: (RuntimeError: DataLoader worker|Connection\\w+Error|EOFError)",
    "workers-each-epoch": "restarts its workers in every epoch",
}
MENDED = SOLUTIONS["when-it-breaks"]


def found_in(script: Path, longest_s: int = 60) -> str:
    told = told_by("unstarve.labs.break_harness", script, 3, longest_s)
    return told if isinstance(told, str) else trouble(told) or "healthy"


@pytest.mark.parametrize("kind", BROKEN)
def test_a_training_breaks_and_is_mended(kind: str, tmp_path: Path) -> None:
    seed = next(seed for seed in range(100) if kind in drawn_kinds(seed).values())
    start("when-it-breaks", tmp_path, seed=seed)
    script = tmp_path / next(name for name, drawn in drawn_kinds(seed).items() if drawn == kind)
    text = script.read_text().replace("timeout=5", "timeout=1")
    if kind != "shared-memory":  # its batches pile up while training computes
        text = text.replace("time.sleep(0.05)", "pass")
    script.write_text(text)
    assert re.search(BROKEN[kind], found_in(script, 5 if kind == "fork-after-threads" else 60))

    ((before, after),) = MENDED[kind]
    assert text.count(before) == 1
    script.write_text(text.replace(before, after))
    assert found_in(script) == "healthy"


def test_the_healthy_training_is_healthy(tmp_path: Path) -> None:
    script = tmp_path / "none.py"
    text = (lab_named("when-it-breaks").folder / "family" / "none.py").read_text()
    script.write_text(text.replace("time.sleep(0.05)", "pass"))
    assert found_in(script) == "healthy"
