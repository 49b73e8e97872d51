"""The port, the signals, the end."""

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
from unstarve.web.app import Limits, build_app
from unstarve.web.desk import JobLimits
from unstarve.web.folder import open_folder
from unstarve.web.guard import Access

LOOPBACK = "127.0.0.1"
_TOKEN = re.compile(r"[A-Za-z0-9._~-]{16,200}")
"""What stands in an address and in a cookie as it is, and takes too long to guess."""
_PATIENCE_S = 1
"""For answers that are on their way when the server ends; live views are ended before."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What to serve and to whom, as asked for."""

    folder: Path
    host: str = LOOPBACK
    port: int = 5000
    """0: any that is free."""
    token: str | None = None
    """None: a new one."""
    needs_token: bool = True
    """False only on a loopback address."""
    max_upload_bytes: int = 200_000_000
    jobs: JobLimits = field(default_factory=JobLimits)


def serve(wishes: Wishes, announce: Callable[[Access], None]) -> None:
    """Serve until Ctrl-C; `announce` hears where and for whom once connections are taken.

    Raises `UsageError` when the folder cannot be read, the port not be had or the token not be used.
    """
    folder = open_folder(wishes.folder)
    if wishes.token is not None and not _TOKEN.fullmatch(wishes.token):
        raise UsageError("a token has 16 to 200 letters, digits and -._~; leave it out to get one made")
    with _bound(wishes) as listening:
        access = _access(wishes, *listening.getsockname()[:2])
        app = build_app(folder, access, Limits(wishes.max_upload_bytes, wishes.jobs))
        announce(access)
        try:
            server_of(app).run(sockets=[listening])
        except KeyboardInterrupt:
            return  # the usual way to end it


def _access(wishes: Wishes, address: str, port: int) -> Access:
    access = Access(address, port, wishes.host, wishes.token or secrets.token_urlsafe(32))
    if wishes.needs_token:
        return access
    if not access.is_local:
        raise UsageError(f"--no-token needs a loopback address, and others can reach {wishes.host}")
    return replace(access, token=None)


def address_of(access: Access) -> str:
    """What to type into a browser."""
    host = access.name
    if host in ("0.0.0.0", "::"):  # every address of this machine
        host = socket.gethostname()
    if ":" in host:
        host = f"[{host}]"
    return f"http://{host}:{access.port}/" + ("" if access.token is None else f"?token={access.token}")


def server_of(app: Starlette) -> uvicorn.Server:
    """Runs what `build_app` made."""
    config = uvicorn.Config(
        app,
        http="h11",
        lifespan="on",
        log_config=None,
        log_level="critical",  # what the app does not expect it prints itself
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_PATIENCE_S,
    )
    return _Server(config)


class _Server(uvicorn.Server):
    """Ends live views and jobs before it waits for answers on their way."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.config.app.state.web.close()  # type: ignore[union-attr]  # the app that serve() gave it
        await super().shutdown(sockets)


def _bound(wishes: Wishes) -> socket.socket:
    where = f"{wishes.host}:{wishes.port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            wishes.host, wishes.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise UsageError(f"--host {wishes.host} is no address of this machine: {error}") from error
    listening = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen()
    except OSError as error:
        listening.close()
        reasons = {
            errno.EADDRINUSE: "another program has that port; take another with --port, or any with --port 0",
            errno.EACCES: "that port is not for everybody; take one from 1024 on with --port",
            errno.EADDRNOTAVAIL: "this machine has no such address; name one of its own with --host",
        }
        reason = reasons.get(error.errno or 0, error.strerror or str(error))
        raise UsageError(f"cannot serve on {where}: {reason}") from error
    return listening
