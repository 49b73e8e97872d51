"""What the app answers with: its own HTML, JSON, refusals, and results for as long as the client waits."""

from __future__ import annotations

import asyncio
import html
import json
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response

from unstarve.present.page.html_page import policy

APP_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
API = "/api/"
T = TypeVar("T")

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
    """A JSON answer; text that is not valid Unicode, from a file name or a run, is escaped."""
    return Response(json.dumps(value, allow_nan=False), status, media_type="application/json")


def shell() -> Response:
    """The page that the app's script fills."""
    body = "<noscript>This page needs JavaScript, which is switched off here.</noscript>"
    return HTMLResponse(_SHELL.format(title="unstarve", script=_SCRIPT, body=body))


def ready_page(page: str) -> Response:
    """The page of a report or a comparison, with the policy that allows its inline script."""
    headers = {"Content-Security-Policy": f"{policy()}; frame-ancestors 'none'"}
    return HTMLResponse(page.encode("utf-8", "replace"), headers=headers)


def redirect_page(location: str, status: int) -> Response:
    """A page that redirects at once: the request then comes from our own page and carries the cookie."""
    address = html.escape(location)
    head = f'<meta http-equiv="refresh" content="0; url={address}">\n'
    body = f'<section class="card"><p><a href="{address}">Continue</a></p></section>'
    return HTMLResponse(_SHELL.format(title="unstarve", script=head, body=body), status)


def refusal(request: Request, status: int, sentence: str) -> Response:
    """Why a request was refused: JSON for a program, a page for a person."""
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


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of the work, which is cancelled with `ClientDisconnect` when the client disconnects.

    The request's body must have been read already, or be irrelevant.
    """
    doing = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({doing, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            raise ClientDisconnect
        return doing.result()
    finally:
        doing.cancel()
        leaving.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
