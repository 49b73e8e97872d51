"""Results in a notebook: small, self-contained, and safe against what names contain."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from IPython.core.formatters import DisplayFormatter, HTMLFormatter

from large_run import large_run
from unstarve.analyze.comparison import compare
from unstarve.api import diagnose
from unstarve.model import Advice, Comparison, Diagnosis, Gain, Gate, Rejected, State, WhatIf
from unstarve.present.exports import report_json as json_view
from unstarve.present.exports.markdown import markdown
from unstarve.present.page.notebook import html_of, text_of

HOSTILE = "</div></pre><script>alert(1)</script><img src=x onerror=alert(1)>\"'&\udcff"


class Page(HTMLParser):
    """Tags and attributes as a browser would see them; unbalanced tags are an error."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def hostile(d: Diagnosis) -> Diagnosis:
    advice = Advice("x", HOSTILE, HOSTILE, {}, Gain(2, 1.5, 2.5), HOSTILE)
    verdict = dataclasses.replace(d.verdict, headline=HOSTILE, evidence=(HOSTILE,))
    loaders = tuple(dataclasses.replace(one, name=HOSTILE, where=HOSTILE) for one in d.loaders)
    return dataclasses.replace(
        d, verdict=verdict, advice=(advice,), lost=(HOSTILE,), device=HOSTILE, path=HOSTILE,
        command=(HOSTILE,), loaders=loaders, rejected=(Rejected("x", HOSTILE, HOSTILE),),
    )  # fmt: skip


@pytest.fixture(scope="module")
def diagnosis() -> Diagnosis:
    return diagnose(large_run(60, 2))


@pytest.fixture(scope="module")
def whatif(diagnosis: Diagnosis) -> WhatIf:
    assert diagnosis.whatif is not None
    return diagnosis.whatif


def comparison(a: Diagnosis, b: Diagnosis) -> Comparison:
    compared = compare(large_run(60, 2), large_run(60, 2))
    return dataclasses.replace(compared, a=a, b=b, gates=(Gate(HOSTILE, True, HOSTILE),))


def test_a_diagnosis_says_the_verdict_and_where_the_time_went(diagnosis: Diagnosis) -> None:
    page = Page(html_of(diagnosis))
    assert diagnosis.verdict.headline in page.text
    assert "STARVED" in page.text
    for share in diagnosis.budget[:3]:
        assert share.cause in page.text


def test_ipython_finds_both_faces_of_every_result(diagnosis: Diagnosis, whatif: WhatIf) -> None:
    for result in (diagnosis, whatif, comparison(diagnosis, diagnosis)):
        assert HTMLFormatter()(result) == html_of(result)
        shown, _ = DisplayFormatter().format(result)
        assert shown == {"text/html": html_of(result), "text/plain": text_of(result)}
        assert max(len(line) for line in shown["text/plain"].splitlines()) <= 80


def test_what_if_marks_the_setting_to_choose(whatif: WhatIf) -> None:
    page = Page(html_of(whatif))
    assert "recorded" in page.text
    assert page.text.count("×") >= len(whatif.curve)


def test_hostile_names_stay_text(diagnosis: Diagnosis, whatif: WhatIf) -> None:
    bad = hostile(diagnosis)
    results: list[Any] = [
        bad,
        comparison(bad, bad),
        dataclasses.replace(whatif, notes=(HOSTILE,), loader=HOSTILE),
    ]
    for result in results:
        html = html_of(result)
        html.encode()
        page = Page(html)
        assert page.tags <= {"div", "span", "b", "ul", "li", "table", "tr", "td", "th", "pre"}
        assert page.attributes <= {"style"}
        assert "<script>alert(1)</script>" in page.text
        assert "http" not in html
        assert len(html) < 30_000


@pytest.mark.parametrize("state", State)
def test_every_state_has_a_colour(diagnosis: Diagnosis, state: State) -> None:
    verdict = dataclasses.replace(diagnosis.verdict, state=state)
    assert state.upper() in Page(html_of(dataclasses.replace(diagnosis, verdict=verdict))).text


def test_what_was_rejected_is_said(diagnosis: Diagnosis) -> None:
    rejected = Rejected("more-workers", "more workers", "would not help, 2 cores are busy")
    shown = Page(html_of(dataclasses.replace(diagnosis, rejected=(rejected,)))).text
    assert "more workers: would not help, 2 cores are busy" in shown


def test_something_else_has_no_html() -> None:
    with pytest.raises(TypeError, match="int"):
        html_of(3)
    with pytest.raises(TypeError, match="int"):
        text_of(3)


def test_json_and_markdown_take_hostile_names_too(diagnosis: Diagnosis) -> None:
    bad = hostile(diagnosis)
    text = json.dumps(json_view.report(bad))
    assert json.loads(text)["verdict"]["headline"] == HOSTILE
    shown = markdown(bad)
    outside_code = "".join(shown.split("`" * 3)[::2])
    assert "<script>" not in re.sub("`[^`]*`", "", outside_code)
