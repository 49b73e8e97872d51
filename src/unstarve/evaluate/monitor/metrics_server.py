"""Let Prometheus scrape a training: a small HTTP server in a thread that never keeps the process alive."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from types import TracebackType
from typing import Any, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from unstarve.errors import UsageError
from unstarve.evaluate.monitor.current_metrics import current_metrics
from unstarve.present.exports.prometheus import registry_of

_SLOWEST_REQUEST_S = 10.0


class MetricsServer:
    """A running server. `close` stops it; as a context manager it stops at the end of the block."""

    def __init__(self, server: WSGIServer) -> None:
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

    Port 0 takes a free one: see `MetricsServer.port`. Only this machine can reach the server unless `host` is
    another address, such as ``"0.0.0.0"``. Several ranks on one machine need a port each. Raises
    `MissingExtraError` where prometheus-client is not installed.
    """
    if type(port) is not int or not 0 <= port <= 65535:
        raise UsageError(f"port must be from 0 (any free one) to 65535, got {port!r}")
    app = _metrics_app()
    try:
        server = _Server((host, port), _Handler)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; give another port, or 0 for any"
        ) from error
    server.set_app(app)
    return MetricsServer(server)


def _metrics_app() -> Callable[..., Iterable[bytes]]:
    """The client library's, which answers on every path; this one has a single page."""
    registry = registry_of(current_metrics)
    from prometheus_client import make_wsgi_app  # optional: `registry_of` has said so if it is missing

    metrics = make_wsgi_app(registry)

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] in ("/metrics", "/"):
            found: Iterable[bytes] = metrics(environ, start_response)
            return found
        start_response("404 Not Found", [("Content-Type", "text/plain; charset=utf-8")])
        return [b"the metrics are at /metrics\n"]

    return app


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False  # a scrape that hangs must not hold up the end of training

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A scraper that went away is no news for the training's log."""


class _Handler(WSGIRequestHandler):
    timeout = _SLOWEST_REQUEST_S

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes are no news either."""


_servers: weakref.WeakSet[MetricsServer] = weakref.WeakSet()


def _let_go_in_child() -> None:
    for server in list(_servers):
        server.let_go()


os.register_at_fork(after_in_child=_let_go_in_child)
