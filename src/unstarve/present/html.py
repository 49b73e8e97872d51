"""One page that holds everything it needs: no network, no server, safe against what names contain.

The data lies in the page as compressed text that only JSON.parse ever reads; the page puts it on the screen
as text nodes. A content security policy with the hashes of our own script and style stands behind that: a
name that broke out could run nothing and reach nobody.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import zlib
from collections.abc import Mapping
from importlib import resources
from typing import Any

from unstarve.model import Comparison, Diagnosis, Views
from unstarve.present.json import comparison as comparison_json
from unstarve.present.json import report as report_json
from unstarve.present.page_data import columns

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


def report_page(diagnosis: Diagnosis, views: Views | None, home: str | None = None) -> str:
    """The report of one run as one HTML file; `home` is an address that its head leads back to."""
    title = f"{diagnosis.verdict.state}: {diagnosis.verdict.headline}"
    return page(title, {"page": "report", "home": home, **_one(diagnosis, views)})


def comparison_page(
    result: Comparison, views_a: Views | None, views_b: Views | None, home: str | None = None
) -> str:
    """Two runs side by side as one HTML file; `home` as above."""
    data = {
        "page": "comparison",
        "home": home,
        "comparison": {k: v for k, v in comparison_json(result).items() if k not in ("a", "b")},
        "a": _one(result.a, views_a),
        "b": _one(result.b, views_b),
    }
    return page(result.headline, data)


def page(title: str, data: Mapping[str, Any]) -> str:
    """Any data that the page's script knows how to show."""
    script, style = _asset("page.js"), _asset("page.css")
    return _PAGE.format(
        policy=policy(), title=html.escape(title), style=style, script=script, data=packed(data)
    )


def policy() -> str:
    """The content security policy of every page: what is in it may run, and nothing else."""
    script, style = _asset("page.js"), _asset("page.css")
    return (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def packed(data: Mapping[str, Any]) -> str:
    """JSON, compressed, in letters that mean nothing to HTML."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    compressor = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    compressed = compressor.compress(text.encode("utf-8", "replace")) + compressor.flush()
    return base64.b64encode(compressed).decode("ascii")


def _one(diagnosis: Diagnosis, views: Views | None) -> dict[str, Any]:
    return {"report": report_json(diagnosis), "views": None if views is None else columns(views)}


def _asset(name: str) -> str:
    return (resources.files("unstarve.present") / "page" / name).read_text("utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"
