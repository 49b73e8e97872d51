"""The app's own HTML: a shell that its script fills, and refusals."""

from __future__ import annotations

import html
import json
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from unstarve.present.page.html_page import policy

APP_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
API = "/api/"

_SHELL = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/app.css">
{script}</head>
<body>
<main id="page">{body}</main>
</body>
</html>
"""
_SCRIPT = '<script src="/app.js" defer></script>\n'


def as_json(value: Any, status: int = 200) -> Response:
    """For a program; text that is not Unicode, from a file's name or from inside a run, is escaped."""
    return Response(json.dumps(value, allow_nan=False), status, media_type="application/json")


def shell() -> Response:
    """A page that the app's script fills."""
    body = "<noscript>This page is drawn with JavaScript, which is switched off here.</noscript>"
    return HTMLResponse(_SHELL.format(title="unstarve", script=_SCRIPT, body=body))


def ready_page(page: str) -> Response:
    """A report's or a comparison's page, which brings its own script, and the policy that lets it run."""
    headers = {"Content-Security-Policy": f"{policy()}; frame-ancestors 'none'"}
    return HTMLResponse(page.encode("utf-8", "replace"), headers=headers)


def step_on(location: str, status: int) -> Response:
    """A page that goes there at once: with what a page of ours asks for, a browser sends the cookie."""
    address = html.escape(location)
    head = f'<meta http-equiv="refresh" content="0; url={address}">\n'
    body = f'<section class="card"><p><a href="{address}">Go on</a></p></section>'
    return HTMLResponse(_SHELL.format(title="unstarve", script=head, body=body), status)


def refusal(request: Request, status: int, sentence: str) -> Response:
    """Why something cannot be had: for a program, or for a person."""
    if request.scope["path"].startswith(API):
        return as_json({"error": sentence}, status)
    said = html.escape(sentence)
    body = (
        '<header><a class="logo" href="/">unstarve</a></header>'
        f'<section class="card" id="refusal"><h1>{said}</h1>'
        '<p><a href="/">All runs</a></p></section>'
    )
    page = _SHELL.format(title=f"{status}", script="", body=body)
    return HTMLResponse(page.encode("utf-8", "replace"), status)
