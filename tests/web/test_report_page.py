"""The report as a reader meets it: in a browser."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from fake_gpu import gpu_training
from fakes import FakeTraining, run_of, simple_run
from large_run import large_run
from rank_runs import met_job
from unstarve.analyze.chart_views import views_of
from unstarve.api import diagnose
from unstarve.model import Advice, FunctionCost, Gain, MemoryLine, MemorySummary, SlowSample
from unstarve.model.checks import finding
from unstarve.present.page import html_page
from unstarve.present.page.html_page import report_page

SECTIONS = ["verdict", "advice", "budget", "timeline", "over-time", "distribution", "functions",
            "slow-samples", "whatif", "memory", "loaders", "environment"]  # fmt: skip
MEMORY_LINES = (
    MemoryLine("training", (0.0, 1.0, 2.0), (10**9, 2 * 10**9, 10**9)),
    MemoryLine("workers", (1.0, 2.0), (5 * 10**8, 7 * 10**8)),
)
HOSTILE = '</script><img src=x onerror="window.broken=1"><b>&amp;\u2028'


def written(folder: Path, steps: int = 300, workers: int = 2, word: str = "decode") -> Path:
    run = large_run(steps, workers, name=word)
    diagnosis = dataclasses.replace(
        diagnose(run),
        command=("train.py", word),
        functions=(FunctionCost(word, f"/data/{word}.py", 3, "cpu", 1.0, 0.5),),  # type: ignore[arg-type]
        slow_samples=(SlowSample(17, 912.0),),
        memory=MemorySummary(2 * 10**9, 7 * 10**8, None, None, MEMORY_LINES),
        advice=(Advice("more-workers", word, word, {}, Gain(2.0, 1.8, 2.2), f"DataLoader({word})"),),
    )
    path = folder / "report.html"
    path.write_text(report_page(diagnosis, views_of(run)), encoding="utf-8")
    return path


def test_everything_is_there_and_the_answer_comes_first(opened: Any, tmp_path: Path) -> None:
    page = opened.show(written(tmp_path))
    shown = page.eval_on_selector_all("section", "found => found.map(one => one.id)")
    assert shown == SECTIONS
    state = page.inner_text("#verdict .badge").lower()
    assert state in ("starved", "tight", "fed")
    assert page.inner_text("h1")
    assert "2.00×" in page.inner_text("#advice")
    assert opened.complaints == []


def test_findings_say_what_where_why_and_the_change(opened: Any, tmp_path: Path) -> None:
    seen = finding("tiny-epochs", f"4 batches {HOSTILE}", "Pass a=1 to x.", file="train.py", line=3)
    code = finding("copy-on-write", "A list.", "data = unstarve.share(data)")
    run = large_run(60, 2)
    path = tmp_path / "report.html"
    path.write_text(report_page(dataclasses.replace(diagnose(run), health=(seen, code)), None), "utf-8")
    page = opened.show(path)
    shown = [one.inner_text() for one in page.query_selector_all("#health li")]
    assert len(shown) == 2
    assert HOSTILE[:20] in shown[0]
    assert all(words in shown[0] for words in ("does not prefetch across", "Pass a=1 to x.", "train.py:3"))
    assert "warning: copy-on-write" in shown[1]
    assert page.inner_text("#health .code code") == "data = unstarve.share(data)"
    assert opened.complaints == []


def test_validation_has_its_own_section(opened: Any, tmp_path: Path) -> None:
    training = FakeTraining()
    training.train([(0.001, 0.099)] * 40)
    training.validate([(0.08, 0.02)] * 30, "val_loader")
    path = tmp_path / "report.html"
    path.write_text(report_page(diagnose(run_of(training)), None), encoding="utf-8")
    page = opened.show(path)
    assert page.inner_text("#validation h3").startswith("Validation (val_loader) takes ")
    assert "train.py:1, validation" in page.inner_text("#loaders")
    assert "validation 3.00 s" in page.inner_text("#budget .outside")
    assert opened.complaints == []


def test_a_legend_has_no_empty_fields(opened: Any, tmp_path: Path) -> None:
    page = opened.show(written(tmp_path))
    assert page.inner_text("#over-time .u-legend") == "waitstep + wait"
    page.hover("#over-time .u-over")
    shown = page.inner_text("#over-time .u-legend")
    assert shown.startswith("at")
    assert "ms" in shown


def test_on_a_gpu_each_share_says_whose_it_is(opened: Any, tmp_path: Path) -> None:
    run = run_of(gpu_training(wait_s=0.088, stall_s=0.083))
    file = tmp_path / "gpu.html"
    file.write_text(report_page(diagnose(run), views_of(run)), encoding="utf-8")
    page = opened.show(file)
    assert page.inner_text("h1").startswith("The GPU starved 83% of the time (the host waited 88%)")
    figures = page.inner_text("#verdict .figures").split("\n")
    assert figures[figures.index("83%") + 1] == "of the time the GPU starved"
    assert figures[figures.index("88%") + 1] == "of the time the host waited"


@pytest.mark.parametrize("opened", [(360, "light")], indirect=True)
def test_a_long_path_is_broken_after_separators(opened: Any, tmp_path: Path) -> None:
    folders = "/home/somebody/projects/segmentation/experiments/december"
    page = opened.show(written(tmp_path, word=f"{folders}/decode"))
    tops = page.eval_on_selector(
        "#functions .name small",
        """place => [...place.childNodes].filter(node => node.nodeType === Node.TEXT_NODE).map(text => {
            const range = document.createRange();
            range.selectNodeContents(text);
            return range.getClientRects().length;
        })""",
    )
    assert len(tops) > 6
    assert set(tops) == {1}  # no name goes over two lines
    assert page.text_content("#functions .name small") == f"/data/{folders}/decode.py:3"


def test_a_step_narrower_than_a_pixel_is_seen(opened: Any, tmp_path: Path) -> None:
    run = simple_run([(0.05, 0.00002)] * 40)
    file = tmp_path / "short.html"
    file.write_text(report_page(diagnose(run), views_of(run)), encoding="utf-8")
    page = opened.show(file)
    page.wait_for_function(
        """() => {
            const canvas = document.querySelector("#timeline canvas"), root = document.documentElement;
            const y = Math.round((22 + 12) * canvas.width / canvas.clientWidth);
            const row = canvas.getContext("2d").getImageData(0, y, canvas.width, 1).data;
            const step = getComputedStyle(root).getPropertyValue("--cause-compute").trim();
            const wanted = [1, 3, 5].map(at => parseInt(step.slice(at, at + 2), 16));
            let steps = 0, inside = false;
            for (let x = 0; x < canvas.width; x++) {
                const same = wanted.every((value, i) => Math.abs(value - row[x * 4 + i]) < 8);
                if (same && !inside) steps += 1;
                inside = same;
            }
            return steps >= 5;
        }"""
    )


def test_functions_say_what_their_shares_are_of(opened: Any, tmp_path: Path) -> None:
    page = opened.show(written(tmp_path))
    assert "share of its stage" in page.inner_text("#functions thead")
    assert "The stages are fetching" in page.inner_text("#functions .note")


def test_no_request_leaves_the_page(opened: Any, tmp_path: Path) -> None:
    file = written(tmp_path)
    opened.show(file)
    assert [url for url in opened.requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert not re.search(r"""(src|href)=["']?https?:""", file.read_text())


def test_hostile_names_stay_text(opened: Any, tmp_path: Path) -> None:
    page = opened.show(written(tmp_path, word=HOSTILE))
    assert page.evaluate("window.broken") is None
    assert page.query_selector("img") is None
    assert HOSTILE.split("\u2028")[0] in page.inner_text("#functions")
    assert HOSTILE.split("\u2028")[0] in page.inner_text("header")
    assert opened.complaints == []


def test_memory_is_drawn_with_its_peaks_and_without_what_is_not_known(opened: Any, tmp_path: Path) -> None:
    page = opened.show(written(tmp_path))
    assert page.query_selector("#memory canvas") is not None
    assert "training 2.0 GB, workers together 700 MB." in page.inner_text("#memory .note")
    assert "shm" not in page.inner_text("#memory")
    labels = page.eval_on_selector_all("#memory .u-label", "found => found.map(one => one.textContent)")
    assert labels == ["at", "training", "workers"]
    assert opened.complaints == []


@pytest.mark.parametrize(
    "opened",
    [(width, theme) for width in (400, 768, 1280) for theme in ("light", "dark")],
    indirect=True,
    ids=lambda case: f"{case[0]}px-{case[1]}",
)
def test_it_fits_every_width_in_both_themes(opened: Any, tmp_path: Path) -> None:
    page = opened.show(written(tmp_path))
    wide = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert wide[0] == wide[1], "the page scrolls sideways"
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    light = sum(int(part) for part in re.findall(r"\d+", background)) > 3 * 128
    assert light == (page.evaluate("matchMedia('(prefers-color-scheme: light)').matches"))
    assert len(page.screenshot(path=str(tmp_path / "page.png"), full_page=True)) > 20_000


def drawn(page: Any) -> str:
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return str(page.eval_on_selector("#timeline canvas", "canvas => canvas.toDataURL()"))


def test_the_timeline_zooms_pans_and_tells_by_keyboard(opened: Any, tmp_path: Path) -> None:
    page = opened.show(written(tmp_path))
    page.focus("#timeline canvas")
    images = [drawn(page)]
    for key in ("+", "ArrowRight", "-", "0"):
        page.keyboard.press(key)
        images.append(drawn(page))
    assert len(set(images)) == len(images)
    page.keyboard.press("n")
    assert "waited" in page.inner_text("#timeline .story")
    first = page.inner_text("#timeline .story b")
    page.keyboard.press("n")
    assert page.inner_text("#timeline .story b") != first
    assert opened.complaints == []


def test_pointing_at_a_span_tells_its_batch(opened: Any, tmp_path: Path) -> None:
    page = opened.show(written(tmp_path))
    drawn(page)
    canvas = page.query_selector("#timeline canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 34)
    assert "batch" in page.inner_text("#timeline .story")
    page.mouse.down()
    before = drawn(page)
    page.mouse.move(box["x"] + box["width"] / 2 - 90, box["y"] + 34, steps=3)
    page.mouse.up()
    assert drawn(page) != before


def test_the_theme_can_be_switched(opened: Any, tmp_path: Path) -> None:
    page = opened.show(written(tmp_path))
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click(".theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    assert opened.complaints == []


def test_ten_thousand_steps_and_eight_workers_stay_below_a_megabyte(opened: Any, tmp_path: Path) -> None:
    file = written(tmp_path, steps=10_000, workers=8)
    assert file.stat().st_size < 1_000_000
    page = opened.show(file)
    page.click("text=Whole run")
    assert len(drawn(page)) > 1000
    assert opened.complaints == []


def test_of_a_very_long_run_a_stretch_is_shown_and_said(
    opened: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(html_page, "_MOST_BATCHES", 100)
    page = opened.show(written(tmp_path))
    assert "Showing batches 100 to 200 of 300" in page.inner_text("#timeline")
    assert opened.complaints == []


def test_a_run_without_batches_still_has_a_page(opened: Any, tmp_path: Path) -> None:
    from fakes import run_of

    path = tmp_path / "empty.html"
    path.write_text(report_page(diagnose(run_of()), views_of(run_of())), encoding="utf-8")
    page = opened.show(path)
    assert page.inner_text("#verdict .badge").lower() == "inconclusive"
    assert opened.complaints == []


@pytest.mark.parametrize("opened", [(400, "dark")], indirect=True)
def test_the_heat_map_of_ranks_fits_a_phone_and_says_what_a_cell_means(opened: Any, tmp_path: Path) -> None:
    run = run_of(*met_job(2, 120, data=lambda rank, step: 30 * (rank == 1)))
    path = tmp_path / "ranks.html"
    path.write_text(report_page(diagnose(run), views_of(run)), encoding="utf-8")
    page = opened.show(path)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    page.locator("#ranks canvas").hover(position={"x": 5, "y": 30})
    assert page.locator(".heat-said").inner_text().startswith("rank 1 on here, steps 0–")
    assert opened.complaints == []
