"""The figure is drawn for any two logs, says what they say, and leaves matplotlib alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from unstarve.errors import MissingExtraError, UsageError
from unstarve.model import LoadComparison, LoadLog
from unstarve.present.exports.comparison_figure import comparison_figure

KNOWN = LoadComparison(
    headline="Training waits 58% of the time; 2.4× faster if loading were free",
    speedup=2.4,
    lost_share=0.58,
    real_wait_share=0.6,
    ideal_wait_share=0.0,
    real_per_s=420.0,
    ideal_per_s=1008.0,
    unit="samples",
)
UNKNOWN = LoadComparison("A batch takes 90 ms to load", None, None, None, None, None, None, "batches")


def log(batches: int, load_s: float, *, gpu: float | None = None) -> LoadLog:
    loads = tuple(load_s * (1 + (n * 7 % 10) / 20) for n in range(batches))
    return LoadLog("x", "log", loads, (load_s * 2,) * (batches - 1), (8,) * batches, gpu)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "made" / "figure.svg"


def test_the_figure_says_what_was_found(output: Path) -> None:
    real, ideal = log(30, 0.09, gpu=0.31), log(30, 0.00001, gpu=0.93)
    text = comparison_figure(real, ideal, KNOWN, output).read_text()
    for said in (KNOWN.headline, "420", "1,008", "samples/s", "58%", "31%", "93%", "lost to data"):
        assert said in text


def test_a_title_leads_and_the_headline_follows(output: Path) -> None:
    text = comparison_figure(log(3, 0.1), log(3, 0.1), KNOWN, output, title="Run $1_2$ <b>").read_text()
    assert "Run $1_2$ &lt;b&gt;" in text
    assert KNOWN.headline in text


def test_what_is_not_known_is_said(output: Path) -> None:
    text = comparison_figure(log(3, 0.1), log(3, 0.1), UNKNOWN, output).read_text()
    assert "unknown" in text
    assert "GPU busy" not in text
    assert "Mean time to get a batch" in text


@pytest.mark.parametrize("batches", [1, 2, 3, 1001, 100_000])
def test_any_number_of_batches_makes_a_small_figure(output: Path, batches: int) -> None:
    comparison_figure(log(batches, 0.09), log(3, 0.00001), KNOWN, output)
    assert 1_000 < output.stat().st_size < 300_000


@pytest.mark.parametrize("load_s", [0.0, 1e-9, 1e4])
def test_extreme_times_can_be_drawn(output: Path, load_s: float) -> None:
    comparison_figure(log(5, load_s), log(5, 0.0), KNOWN, output)


def test_an_outlier_does_not_flatten_the_rest(output: Path) -> None:
    slow = LoadLog("x", "log", (9.0,) + (0.01,) * 99, (), ())
    assert "slowest 9.00 s" in comparison_figure(slow, log(100, 0.005), KNOWN, output).read_text()


def test_png_is_written_by_suffix(tmp_path: Path) -> None:
    path = comparison_figure(log(3, 0.1), log(3, 0.01), KNOWN, tmp_path / "x.PNG")
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["x.jpg", "x", "x.pdf"])
def test_other_kinds_of_file_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=r"\.png or \.svg"):
        comparison_figure(log(3, 0.1), log(3, 0.1), KNOWN, tmp_path / name)


def test_without_matplotlib_the_extra_is_named(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'unstarve\[plot\]'"):
        comparison_figure(log(3, 0.1), log(3, 0.1), KNOWN, output)


def test_matplotlibs_settings_are_left_alone(output: Path) -> None:
    import matplotlib as mpl

    before, had_pyplot = mpl.rcParams.copy(), "matplotlib.pyplot" in sys.modules
    comparison_figure(log(3, 0.1), log(3, 0.1), KNOWN, output)
    assert mpl.rcParams.copy() == before
    assert ("matplotlib.pyplot" in sys.modules) == had_pyplot
