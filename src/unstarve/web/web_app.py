"""The app: its addresses and their handlers."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import traceback
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field
from importlib import resources
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from unstarve.errors import (
    JobTimeoutError,
    NoRoomError,
    NoSuchRunError,
    RunExistsError,
    ServerBusyError,
    StoppedError,
    UnstarveError,
    UploadTooLargeError,
    UsageError,
)
from unstarve.web.guard import Guard, ServerAccess
from unstarve.web.job_pool import JobLimits, JobPool
from unstarve.web.jobs import comparison_html
from unstarve.web.private_paths import without_folders
from unstarve.web.report_pages import ReportPages
from unstarve.web.responses import as_json, ready_page, refusal, shell, while_connected
from unstarve.web.run_folder import RunFolder
from unstarve.web.run_views import LiveViews, RunLine, RunList
from unstarve.web.upload import take_upload

_ASSETS = {"app.js": "text/javascript; charset=utf-8", "app.css": "text/css; charset=utf-8"}
_STATUS: tuple[tuple[type[UnstarveError], int], ...] = (
    (NoSuchRunError, 404),
    (RunExistsError, 409),
    (UploadTooLargeError, 413),
    (UsageError, 400),
    (StoppedError, 503),
    (ServerBusyError, 503),
    (JobTimeoutError, 504),
    (NoRoomError, 507),
)
"""The first match counts; our other errors are about the content of a run: 422."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the app accepts."""

    upload_bytes: int
    jobs: JobLimits = field(default_factory=JobLimits)


class WebApp:
    """The state shared by the handlers. Created inside the event loop that serves it."""

    def __init__(self, folder: RunFolder, jobs: JobPool, limits: Limits) -> None:
        self.folder = folder
        self.jobs = jobs
        self.limits = limits
        self.pages = ReportPages(jobs)
        self.runs = RunList(jobs, self.pages)
        self.closing = asyncio.Event()
        self.live = LiveViews(self.closing, jobs)

    def close(self) -> None:
        """End everything that a request may be waiting for. May be called twice."""
        self.closing.set()
        self.runs.close()
        self.jobs.close()


def build_app(
    folder: RunFolder, access: ServerAccess, limits: Limits, jobs: JobPool | None = None
) -> Starlette:
    """The app for a folder of runs; `jobs` is closed with it."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.web = WebApp(folder, jobs or JobPool(limits.jobs), limits)
        try:
            yield
        finally:
            app.state.web.close()

    return Starlette(
        routes=[
            Route("/", _shell),
            Route("/live/{id}", _shell),
            Route("/run/{id}", _report),
            Route("/compare", _comparison),
            *(Route(f"/{name}", _asset) for name in _ASSETS),
            Route("/api/runs", _list),
            Route("/api/runs", _upload, methods=["PUT"]),
            Route("/api/runs/{id}", _delete, methods=["DELETE"]),
            Route("/api/runs/{id}/live", _live),
        ],
        middleware=[Middleware(Guard, access=access)],
        exception_handlers={
            UnstarveError: _ours,
            HTTPException: _http,
            ClientDisconnect: _left,
            Exception: _unexpected,
        },
        lifespan=lifespan,
    )


def web(request: Request) -> WebApp:
    """The state shared by the handlers."""
    found = request.app.state.web
    assert isinstance(found, WebApp)
    return found


async def _shell(request: Request) -> Response:
    return shell()


async def _asset(request: Request) -> Response:
    name = request.scope["path"].removeprefix("/")
    text = (resources.files("unstarve.web") / "page" / name).read_text("utf-8")
    return Response(text, media_type=_ASSETS[name])


async def _list(request: Request) -> Response:
    app = web(request)
    lines = app.runs.lines(await asyncio.to_thread(app.folder.entries))  # the folder may be on a slow network
    return as_json(
        {
            "folder": str(app.folder.path.name or app.folder.path),
            "max_upload_bytes": app.limits.upload_bytes,
            "runs": [_plain(line) for line in lines],
        }
    )


def _plain(line: RunLine) -> dict[str, Any]:
    summary = None if line.summary is None else asdict(line.summary)
    return {"id": line.entry.id, "name": line.entry.name, "stale": line.is_stale, "summary": summary}


async def _report(request: Request) -> Response:
    app = web(request)
    entry = await asyncio.to_thread(app.folder.find, request.path_params["id"])
    return ready_page(await while_connected(request, app.pages.page(entry)))


async def _comparison(request: Request) -> Response:
    app = web(request)
    asked = [request.query_params.get(side, "") for side in ("a", "b")]
    a, b = [await asyncio.to_thread(app.folder.find, run_id) for run_id in asked]
    return ready_page(await while_connected(request, app.jobs.do(comparison_html, a.path, b.path)))


async def _upload(request: Request) -> Response:
    app = web(request)
    entry = await take_upload(request, app.folder, app.jobs, app.limits.upload_bytes)
    return as_json({"id": entry.id, "name": entry.name}, 201)


async def _delete(request: Request) -> Response:
    await asyncio.to_thread(web(request).folder.delete, request.path_params["id"])
    return Response(status_code=204)


async def _live(request: Request) -> Response:
    app = web(request)
    entry = await asyncio.to_thread(app.folder.find, request.path_params["id"])
    return StreamingResponse(app.live.events(entry), media_type="text/event-stream")


async def _ours(request: Request, error: Exception) -> Response:
    status = next((code for kind, code in _STATUS if isinstance(error, kind)), 422)
    return refusal(request, status, without_folders(str(error)))


async def _left(request: Request, error: Exception) -> Response:
    return Response(status_code=400)  # the client is gone


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentences = {404: "there is nothing at this address", 405: "this address does not accept this method"}
    return refusal(request, error.status_code, sentences.get(error.status_code, error.detail))


async def _unexpected(request: Request, error: Exception) -> Response:
    print(f"unstarve: {request.method} {request.scope['path']!r} failed:", file=sys.stderr)
    traceback.print_exception(error)
    return refusal(request, 500, "the server failed to answer this; its terminal says why")
