"""Reports as self-contained HTML pages: no network, no server, safe whatever names contain.

The data is compressed text in the page that only JSON.parse reads; the script shows it as text nodes. As a
second defence, a content security policy allows only our own script and style, by hash: a name that broke
out could run nothing and reach nobody.

`Views` travel as columns of small integers, so that a page of ten thousand steps stays small: times are
microseconds, and each column of times holds differences to the row before, which compress well. The page
adds them up and draws; it computes nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from itertools import pairwise
from typing import Any

from unstarve.model import (
    BatchStory,
    Cause,
    Comparison,
    Diagnosis,
    Doing,
    EpochBorder,
    Histogram,
    Lane,
    LaneSpan,
    Views,
)
from unstarve.present.exports.report_json import comparison as comparison_json
from unstarve.present.exports.report_json import report as report_json

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<noscript>This page needs JavaScript to draw its charts; it is switched off here.</noscript>
<main id="page"></main>
<script type="application/octet-stream" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""

_MOST_BATCHES = 20_000
_MOST_SPANS = 150_000
_SMALLEST_PART = 0.02
"""Smaller parts of a wait are left out."""

_DOINGS = tuple(Doing)
_CAUSES = tuple(Cause)


def report_page(diagnosis: Diagnosis, views: Views | None, home: str | None = None) -> str:
    """The report of one run as an HTML page; `home` is the address its header links to."""
    title = f"{diagnosis.verdict.state}: {diagnosis.verdict.headline}"
    return page(title, {"page": "report", "home": home, **_one(diagnosis, views)})


def comparison_page(
    result: Comparison, views_a: Views | None, views_b: Views | None, home: str | None = None
) -> str:
    """Two runs side by side as an HTML page; `home` as in `report_page`."""
    data = {
        "page": "comparison",
        "home": home,
        "comparison": {k: v for k, v in comparison_json(result).items() if k not in ("a", "b")},
        "a": _one(result.a, views_a),
        "b": _one(result.b, views_b),
    }
    return page(result.headline, data)


def page(title: str, data: Mapping[str, Any]) -> str:
    """A page with any data that its script can show."""
    script, style = _asset("page.js"), _asset("page.css")
    return _PAGE.format(
        policy=policy(), title=html.escape(title), style=style, script=script, data=packed(data)
    )


def policy() -> str:
    """The content security policy of every page: its own script and style, and nothing else."""
    script, style = _asset("page.js"), _asset("page.css")
    return (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def packed(data: Mapping[str, Any]) -> str:
    """Compressed JSON as base64, which needs no escaping in HTML."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    compressor = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    compressed = compressor.compress(text.encode("utf-8", "replace")) + compressor.flush()
    return base64.b64encode(compressed).decode("ascii")


def _one(diagnosis: Diagnosis, views: Views | None) -> dict[str, Any]:
    return {"report": report_json(diagnosis), "views": None if views is None else columns(views)}


def _asset(name: str) -> str:
    return (resources.files("unstarve.present.page") / "built" / name).read_text("utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"


def columns(views: Views) -> dict[str, Any]:
    """All of a small run; of a large one a stretch in the middle, given by `shown`."""
    first, last = _shown(views)
    batches = views.batches[first:last]
    begin_s = 0.0 if first == 0 else batches[0].ask_s
    end_s = float("inf") if last == len(views.batches) else batches[-1].got_s
    loaders = sorted({story.loader for story in batches})
    return {
        "rank": views.rank,
        "shown": {
            name: views.before + at
            for name, at in (("first", first), ("last", last), ("of", len(views.batches)))
        },
        "warmup_end_s": round(views.warmup_end_s, 6),
        "doings": [doing.value for doing in _DOINGS],
        "causes": [cause.value for cause in _CAUSES],
        "loaders": loaders,
        "lanes": [_lane(lane, begin_s, end_s, first) for lane in views.lanes],
        "batches": _batches(batches, loaders),
        "epochs": [_epoch(border) for border in views.epochs if begin_s <= border.begin_s <= end_s],
        "wait_ms": _histogram(views.wait_ms),
        "step_ms": _histogram(views.step_ms),
    }


def _shown(views: Views) -> tuple[int, int]:
    count = len(views.batches)
    spans = sum(len(lane.spans) for lane in views.lanes)
    room = min(_MOST_BATCHES, int(count * _MOST_SPANS / max(spans, 1)))
    if count <= room:
        return 0, count
    first = (count - room) // 2
    return first, first + room


def _lane(lane: Lane, begin_s: float, end_s: float, first: int) -> dict[str, Any]:
    spans = [span for span in lane.spans if span.end_s >= begin_s and span.begin_s <= end_s]
    return {
        "name": lane.name,
        "kind": lane.kind.value,
        "begin": _differences(_us(span.begin_s) for span in spans),
        "length": [max(_us(span.end_s) - _us(span.begin_s), 0) for span in spans],
        "doing": [_DOINGS.index(span.doing) for span in spans],
        "batch": _differences(_number(span, first) for span in spans),
    }


def _number(span: LaneSpan, first: int) -> int:
    return -1 if span.batch is None else max(span.batch - first, -1)


def _batches(stories: Sequence[BatchStory], loaders: Sequence[str]) -> dict[str, Any]:
    return {
        "loader": [loaders.index(story.loader) for story in stories],
        "epoch": [story.epoch for story in stories],
        "position": _differences(story.position for story in stories),
        "ask": _differences(_us(story.ask_s) for story in stories),
        "wait": [_us(story.got_s - story.ask_s) for story in stories],
        "step": [-1 if story.step_s is None else _us(story.step_s) for story in stories],
        "worker": [-1 if story.worker is None else story.worker for story in stories],
        "ready": [-1 if story.ready is None else story.ready for story in stories],
        "size": [-1 if story.size is None else story.size for story in stories],
        "causes": [_parts(story) for story in stories],
    }


def _parts(story: BatchStory) -> list[int]:
    """Pairs of a cause's index and its percentage of the wait, largest first."""
    wait_s = sum(story.causes.values())
    parts = sorted(story.causes.items(), key=lambda part: -part[1])
    shares = [(cause, seconds / wait_s) for cause, seconds in parts if wait_s]
    return [
        number
        for cause, share in shares
        if share >= _SMALLEST_PART
        for number in (_CAUSES.index(cause), round(share * 100))
    ]


def _epoch(border: EpochBorder) -> dict[str, Any]:
    return {"loader": border.loader, "epoch": border.epoch, "begin_s": round(border.begin_s, 6)}


def _histogram(histogram: Histogram | None) -> dict[str, Any] | None:
    if histogram is None:
        return None
    return {
        "edges_ms": [float(f"{edge:.6g}") for edge in histogram.edges_ms],
        "counts": list(histogram.counts),
    }


def _us(seconds: float) -> int:
    return round(seconds * 1e6)


def _differences(values: Iterable[int]) -> list[int]:
    known = list(values)
    return known[:1] + [b - a for a, b in pairwise(known)]
