from __future__ import annotations

import dataclasses

from fake_gpu import gpu_training
from fakes import run_of
from large_run import large_run
from unstarve.analyze.diagnose import analyze_run
from unstarve.api import diagnose
from unstarve.model import Advice, Diagnosis, Gain
from unstarve.model.checks import finding
from unstarve.present.exports.markdown import markdown


def shown(**changes: object) -> str:
    diagnosis: Diagnosis = dataclasses.replace(diagnose(large_run(60, 2)), **changes)  # type: ignore[arg-type] # what a test changes
    return markdown(diagnosis)


def test_the_verdict_comes_first_and_the_budget_is_a_table() -> None:
    lines = shown().splitlines()
    assert lines[0].startswith("### 🔴 starved: ")
    assert "| where the time went | share | time |" in lines


def test_each_share_says_whose_it_is() -> None:
    on_gpu = markdown(analyze_run(run_of(gpu_training(wait_s=0.088, stall_s=0.083))))
    assert "| GPU starved | 83% |\n| host waited | 88% |" in on_gpu
    assert "| GPU starved | unknown |" in markdown(analyze_run(run_of(gpu_training(stall_s=None))))
    assert "| waiting for data |" in shown()


def test_findings_say_what_where_why_and_the_change() -> None:
    seen = finding("tiny-epochs", "4 <batches>.", "Pass a=1 to `x`.", file="train.py", line=3)
    code = finding("copy-on-write", "A list.", "data = unstarve.share(data)")
    lines = shown(health=(seen, code)).splitlines()
    assert "🟡 **warning** `tiny-epochs` · `train.py:3`" in lines
    assert any(line.startswith("4 \\<batches\\>. The DataLoader does not prefetch") for line in lines)
    assert "Pass a=1 to \\`x\\`." in lines
    assert "data = unstarve.share(data)" in lines


def test_names_from_the_data_cannot_break_out() -> None:
    advice = Advice("x", "<b>`*| title", "a | b", {}, Gain(2, 1.5, 2.5), "x = '```'")
    text = shown(command=("a|b`c", "<img>"), advice=(advice,), lost=("# not a heading\nnor this",))
    assert r"\<b\>\`\*\| title" in text
    assert "``` a\\|b" not in text
    assert "`` a\\|b`c <img> ``" in text
    assert "````python\nx = '```'\n````" in text
    assert "> ⚠ \\# not a heading nor this" in text
