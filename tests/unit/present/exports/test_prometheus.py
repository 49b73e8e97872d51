"""Metrics are read back with Prometheus' own parser."""

from __future__ import annotations

import math
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from fake_gpu import gpu_training
from fakes import run_of
from large_run import large_run
from unstarve.api import diagnose, series_of
from unstarve.cli import report as report_verb
from unstarve.cli.app import app
from unstarve.model import Metric, MetricKind, Run
from unstarve.present.exports.prometheus import exposition, report_metrics

HOSTILE = 'a"b\\n\\"}\n# HELP evil\n{x="1"} 9\r\u2028<script>\udcff\\'


def samples(text: str) -> list[tuple[str, dict[str, str], float]]:
    return [
        (s.name, s.labels, s.value) for family in text_string_to_metric_families(text) for s in family.samples
    ]


def test_a_run_is_read_back_as_it_was_written() -> None:
    run = large_run(60, 2)
    diagnosis, series = diagnose(run), series_of(run)
    found = samples(exposition(report_metrics(diagnosis, series)))
    values = {(name, labels.get("cause")): value for name, labels, value in found}
    assert values["unstarve_stall_ratio", None] == pytest.approx(diagnosis.stall_share)
    assert values["unstarve_batches_total", None] == 60
    assert values["unstarve_samples_total", None] == 480
    for cause, seconds in series[0].waits.items():
        if seconds:
            assert values["unstarve_wait_seconds_total", cause] == pytest.approx(seconds)
    (labels,) = (labels for name, labels, _ in found if name == "unstarve_batches_total")
    assert labels == {"rank": "0", "loader": "train"}
    assert values["unstarve_run_info", diagnosis.verdict.cause] == 1


def test_the_ratios_say_whose_they_are() -> None:
    run = run_of(gpu_training(wait_s=0.088, stall_s=0.083))
    told = {m.name: (m.help, m.value) for m in report_metrics(diagnose(run), series_of(run))}
    assert told["unstarve_stall_ratio"][1] == pytest.approx(0.83, abs=0.005)
    assert "GPU starves" in told["unstarve_stall_ratio"][0]
    assert told["unstarve_wait_ratio"][1] == pytest.approx(0.88, abs=0.005)
    assert "host waits" in told["unstarve_wait_ratio"][0]


def test_every_family_is_declared_once_and_in_one_piece() -> None:
    run = large_run(60, 2)
    lines = exposition(report_metrics(diagnose(run), (*series_of(run), *series_of(run)))).splitlines()
    names = [line.split("{")[0].split(" ")[0] for line in lines if not line.startswith("#")]
    pieces = [name for name, _ in groupby(names)]
    assert len(pieces) == len(set(pieces))
    declared = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(declared) == len(set(declared))


def test_a_hostile_name_stays_a_label() -> None:
    metric = Metric("unstarve_batches_total", MetricKind.COUNTER, "All\nof\\ them.", 3, {"loader": HOSTILE})
    text = exposition([metric])
    text.encode()
    ((name, labels, value),) = samples(text)
    assert (name, value) == ("unstarve_batches_total", 3)
    assert labels["loader"].startswith('a"b\\n\\"}\n# HELP evil\n{x="1"} 9')


@pytest.mark.parametrize("value", [0.0, 1.5e-9, 2**60, math.inf, -math.inf, 1 / 3])
def test_numbers_survive(value: float) -> None:
    ((_, _, read),) = samples(exposition([Metric("m", MetricKind.GAUGE, "h", value)]))
    assert read == value
    assert "NaN" in exposition([Metric("m", MetricKind.GAUGE, "h", math.nan)])


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Run:
    run = large_run(30, 2)
    monkeypatch.setattr(report_verb, "load_run", lambda _path: run)
    return run


def invoke(*words: Any) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.mark.usefixtures("recorded")
def test_the_command_line_writes_a_textfile(tmp_path: Path) -> None:
    done = invoke("report", "run.unstarve", "--prometheus", tmp_path / "run.prom")
    assert done.exit_code == 0, done.output
    assert ("unstarve_batches_total", {"rank": "0", "loader": "train"}, 30.0) in samples(
        (tmp_path / "run.prom").read_text()
    )
    assert [path.name for path in tmp_path.iterdir()] == ["run.prom"]
