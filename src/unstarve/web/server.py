"""Listen on a port, serve the app, shut down on Ctrl-C."""

from __future__ import annotations

import errno
import os
import re
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import uvicorn
from starlette.applications import Starlette

from unstarve.errors import UsageError
from unstarve.web.guard import ServerAccess
from unstarve.web.job_pool import JobLimits
from unstarve.web.run_folder import open_folder
from unstarve.web.web_app import Limits, build_app

LOOPBACK = "127.0.0.1"
_TOKEN = re.compile(r"[A-Za-z0-9._~-]{16,200}")
"""Needs no quoting in a URL or a cookie, and is too long to guess."""
_PATIENCE_S = 1
"""Time for answers in progress when the server ends; live views are ended before."""


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What to serve, where and to whom."""

    folder: Path
    host: str = LOOPBACK
    port: int = 5000
    """0: any free port."""
    token: str | None = None
    """None: a new one."""
    needs_token: bool = True
    """May be False only on a loopback address."""
    max_upload_bytes: int = 200_000_000
    jobs: JobLimits = field(default_factory=JobLimits)


def serve(options: ServeOptions, announce: Callable[[ServerAccess], None]) -> None:
    """Serve until Ctrl-C; `announce` is called once connections are accepted.

    Raises `UsageError` when the folder cannot be read, the port is taken or the token is invalid.
    """
    folder = open_folder(options.folder)
    if options.token is not None and not _TOKEN.fullmatch(options.token):
        raise UsageError(
            "a token must have 16 to 200 letters, digits or -._~; without --token one is generated"
        )
    with _bound(options) as listening:
        access = _access(options, *listening.getsockname()[:2])
        app = build_app(folder, access, Limits(options.max_upload_bytes, options.jobs))
        announce(access)
        try:
            server_of(app).run(sockets=[listening])
        except KeyboardInterrupt:
            return  # the usual way to end it


def _access(options: ServeOptions, address: str, port: int) -> ServerAccess:
    access = ServerAccess(address, port, options.host, options.token or secrets.token_urlsafe(32))
    if options.needs_token:
        return access
    if not access.is_local:
        raise UsageError(f"--no-token needs a loopback address; other machines can reach {options.host}")
    return replace(access, token=None)


def address_of(access: ServerAccess) -> str:
    """The URL to open in a browser."""
    host = access.name
    if host in ("0.0.0.0", "::"):  # all addresses of this machine
        host = socket.gethostname()
    if ":" in host:
        host = f"[{host}]"
    return f"http://{host}:{access.port}/" + ("" if access.token is None else f"?token={access.token}")


def server_of(app: Starlette) -> uvicorn.Server:
    """The server for an app from `build_app`."""
    config = uvicorn.Config(
        app,
        http="h11",
        lifespan="on",
        log_config=None,
        log_level="critical",  # the app prints unexpected errors itself
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_PATIENCE_S,
    )
    return _WebServer(config)


class _WebServer(uvicorn.Server):
    """Ends live views and jobs before it waits for answers in progress."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.config.app.state.web.close()  # type: ignore[union-attr]  # the app that serve() gave it
        await super().shutdown(sockets)


def _bound(options: ServeOptions) -> socket.socket:
    where = f"{options.host}:{options.port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise UsageError(f"--host {options.host} is not an address of this machine: {error}") from error
    listening = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen()
    except OSError as error:
        listening.close()
        reasons = {
            errno.EADDRINUSE: "another program uses that port; choose another with --port (0: any free one)",
            errno.EACCES: "that port needs root; choose one above 1023 with --port",
            errno.EADDRNOTAVAIL: "this machine has no such address; pass one of its addresses with --host",
        }
        reason = reasons.get(error.errno or 0, error.strerror or str(error))
        raise UsageError(f"cannot serve on {where}: {reason}") from error
    return listening
