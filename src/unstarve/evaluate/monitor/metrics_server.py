"""Let Prometheus scrape a training: a small HTTP server in a thread that never keeps the process alive."""

from __future__ import annotations

import os
import threading
import weakref
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from unstarve.errors import UsageError
from unstarve.evaluate.monitor.current_metrics import current_metrics
from unstarve.present.prometheus import CONTENT_TYPE, exposition

_SLOWEST_REQUEST_S = 10.0


class MetricsServer:
    """A running server. `close` stops it; as a context manager it stops at the end of the block."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, name="unstarve-metrics", daemon=True)
        self._thread.start()
        _servers.add(self)

    @property
    def port(self) -> int:
        """The port that is listened on: the one asked for, or the free one that was found for 0."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """Where to scrape."""
        host = str(self._server.server_address[0])
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/metrics"

    def close(self) -> None:
        """Stop listening and free the port. Safe to call twice."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def let_go(self) -> None:
        """In a forked child: the server is the parent's, but the child has a copy of its socket."""
        self._server.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"MetricsServer({self.url!r})"


def serve_metrics(port: int = 9464, host: str = "127.0.0.1") -> MetricsServer:
    """Serve `current_metrics` at ``http://HOST:PORT/metrics`` until `close` is called or the process ends.

    Port 0 takes a free one: see `MetricsServer.port`. Only this machine can reach it unless `host` says
    otherwise, as ``"0.0.0.0"`` does. With several ranks on one machine give each a port of its own.
    """
    if type(port) is not int or not 0 <= port <= 65535:
        raise UsageError(f"port is a number from 0 (any that is free) to 65535, not {port!r}")
    try:
        server = _Server((host, port), _Handler)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; give another port, or 0 for any"
        ) from error
    return MetricsServer(server)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # A scrape that hangs must not hold up the end of training.
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A scraper that went away is no news for the training's log."""


class _Handler(BaseHTTPRequestHandler):
    timeout = _SLOWEST_REQUEST_S

    def do_GET(self) -> None:
        if self.path.partition("?")[0] not in ("/metrics", "/"):
            self.send_error(404, "the metrics are at /metrics")
            return
        body = exposition(current_metrics()).encode()
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes are not news."""


_servers: weakref.WeakSet[MetricsServer] = weakref.WeakSet()


def _let_go_in_child() -> None:
    for server in list(_servers):
        server.let_go()


os.register_at_fork(after_in_child=_let_go_in_child)
