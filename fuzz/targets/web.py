"""Requests to `unstarve serve`: the app without a port, asked as a server would ask it.

An input is a request as text: a line with method and address, lines with headers, an empty line, the body.
"""

from __future__ import annotations

import asyncio
import functools
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import unquote

from fuzz.changes import bytes_changed
from fuzz.targets import run_file
from unstarve.web.guard import ServerAccess
from unstarve.web.run_folder import open_folder
from unstarve.web.web_app import Limits, build_app
from web_client import threaded_jobs

_TOKEN = "the-token"  # of a server that lives as long as this process
_SECRET = b"a file that nobody serves"
_UPLOAD_BYTES = 50_000
_DELIBERATE = (503, 504)
_METHODS = (b"GET", b"HEAD", b"PUT", b"DELETE", b"POST", b"OPTIONS", b"PATCH", b"get", b"X", b"TRACE")
_ADDRESSES = (
    b"/", b"//", b"/run/a.unstarve", b"/run/..%2fsecret.unstarve", b"/run/%2e%2e/secret.unstarve",
    b"/run/%00", b"/run/", b"/live/a.unstarve", b"/compare?a=a.unstarve&b=b.unstarve", b"/compare?a=&a=&b[]=",
    b"/compare", b"/api/runs", b"/api/runs?name=new.unstarve", b"/api/runs?name=../secret.unstarve",
    b"/api/runs?name=%ff%fe.unstarve", b"/api/runs?name=" + b"n" * 3000 + b".unstarve",
    b"/api/runs?name=a.unstarve", b"/api/runs/a.unstarve", b"/api/runs/a.unstarve/live",
    b"/api/runs/" + b"x" * 5000, b"/api/runs/~00/live", b"/app.js", b"/app.js/../app.css",
    b"/?token=the-token", b"//evil.example/?token=the-token", b"/\\evil.example?token=the-token",
    b"/?token=%ff", b"/..;/secret.unstarve", b"*", b"http://localhost:5000/", b"/%", b"/%zz?%zz=%zz",
    b"/?" + b"a&" * 2000,
)  # fmt: skip
_HEADERS = (
    b"host: localhost:5000", b"host: 127.0.0.1:5000", b"host: [::1]:5000", b"host: [", b"host: evil.example",
    b"host: ", b"host: localhost:99999999", b"host: localhost:x", b"host: \xff",
    b"origin: http://localhost:5000", b"origin: http://[", b"origin: null", b"origin: http://evil.example",
    b"origin: ://", b"sec-fetch-site: cross-site", b"sec-fetch-site: same-origin",
    b"sec-fetch-mode: navigate", b"authorization: Bearer the-token", b"authorization: Bearer \xff",
    b"authorization: Basic eA==", b"authorization: ", b"cookie: unstarve-5000=the-token",
    b"cookie: " + b"=;" * 3000, b"cookie: unstarve-5000=\xe4", b"content-length: 99999999999999999999",
    b"content-length: -1", b"content-length: \xb2", b"content-length: 1e9", b"transfer-encoding: chunked",
    b"content-type: text/html; charset=x", b"range: bytes=0-18446744073709551615", b"accept: */*;q=x",
    b"x: " + b"y" * 8000, b"expect: 100-continue",
)  # fmt: skip


def seeds() -> list[bytes]:
    local, run = b"host: localhost:5000", run_file.seeds()[1]
    return [
        _request(b"GET /", local),
        _request(b"GET /api/runs", local, b"origin: http://localhost:5000"),
        _request(b"GET /run/a.unstarve", local, b"sec-fetch-mode: navigate"),
        _request(b"GET /compare?a=a.unstarve&b=b.unstarve", local),
        _request(b"GET /api/runs/a.unstarve/live", local),
        _request(b"DELETE /api/runs/b.unstarve", local),
        _request(b"PUT /api/runs?name=new.unstarve", local, body=run),
        _request(b"GET /?token=the-token", local),
    ]


def hostile() -> dict[str, bytes]:
    """One request for each hostile address and each hostile header."""
    local = b"host: localhost:5000"
    addresses = {f"address {n}": _request(b"GET " + address, local) for n, address in enumerate(_ADDRESSES)}
    headers = {f"header {n}": _request(b"GET /api/runs", local, header) for n, header in enumerate(_HEADERS)}
    big = _request(b"PUT /api/runs?name=big.unstarve", local, body=bytes(2 * _UPLOAD_BYTES))
    return addresses | headers | {"more than the server takes": big}


def changed(data: bytes, random: Random) -> bytes:
    """Another method, address, header or body."""
    head, _, body = data.partition(b"\n\n")
    first, *headers = head.split(b"\n")
    method, _, address = first.partition(b" ")
    match random.randrange(7):
        case 0:
            method = random.choice(_METHODS)
        case 1 | 2:
            address = random.choice(_ADDRESSES)
        case 3 | 4:
            headers.insert(random.randrange(len(headers) + 1), random.choice(_HEADERS))
        case 5:
            address = bytes_changed(address, random.choice(_ADDRESSES), random)
        case _:
            body = run_file.changed(random.choice(run_file.seeds()), random)
    return _request(method + b" " + address, *headers, body=body)


def run(data: bytes, folder: Path) -> None:
    server = _server(folder)
    for app in server.apps:
        server.fill()
        status, answer = server.loop.run_until_complete(asyncio.wait_for(_ask(app, data), 60))
        assert status < 500 or status in _DELIBERATE, f"status {status}"
        assert _SECRET not in answer, "a file outside of the served folder was read"
        assert server.outside() == [server.runs.name, "secret.unstarve"], "the folder around was changed"
        assert server.secret.read_bytes() == _SECRET, "a file outside of the served folder was changed"


class _Server:
    """A folder of two runs inside of another one, served to this machine alone and with a token to others."""

    def __init__(self, around: Path) -> None:
        self.runs, self.secret = around / "runs", around / "secret.unstarve"
        self.runs.mkdir()
        self.secret.write_bytes(_SECRET)
        self.fill()
        self.loop = asyncio.new_event_loop()
        self.apps = [
            self.loop.run_until_complete(self._started(ServerAccess("127.0.0.1", 5000))),
            self.loop.run_until_complete(self._started(ServerAccess("0.0.0.0", 5000, "box", _TOKEN))),
        ]

    async def _started(self, access: ServerAccess) -> Any:
        app = build_app(open_folder(self.runs), access, Limits(_UPLOAD_BYTES), threaded_jobs())
        await app.router.lifespan_context(app).__aenter__()
        return app

    def fill(self) -> None:
        """The runs as they were in the beginning."""
        wanted = {"a.unstarve": run_file.seeds()[0], "b.unstarve": run_file.seeds()[1]}
        for file in self.runs.iterdir():
            if file.name not in wanted:
                file.unlink()
        for name, content in wanted.items():
            if not (self.runs / name).exists():
                (self.runs / name).write_bytes(content)

    def outside(self) -> list[str]:
        """What lies around the served folder."""
        return sorted(file.name for file in self.runs.parent.iterdir())


_server = functools.cache(_Server)


async def _ask(app: Any, data: bytes) -> tuple[int, bytes]:
    """Status and body of the answer."""
    head, _, body = data.partition(b"\n\n")
    first, *lines = head.split(b"\n")
    method, _, address = first.partition(b" ")
    path, _, query = _plain(address).partition(b"?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": _plain(method).decode("ascii"),
        "scheme": "http",
        "path": unquote(path.decode("ascii")),
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        "headers": [_header(line) for line in lines],
        "client": ("127.0.0.1", 40000),
        "server": ("127.0.0.1", 5000),
    }
    status, answer, answered = 0, bytearray(), asyncio.Event()
    pieces = [body[at : at + 4096] for at in range(0, len(body), 4096)] or [b""]

    async def receive() -> dict[str, Any]:
        if pieces:
            return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}
        await answered.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status
        status = message.get("status", status)
        answer.extend(message.get("body", b""))
        if message["type"] == "http.response.body":
            answered.set()  # a view of a running training would go on for ever

    await app(scope, receive, send)
    return status, bytes(answer)


def _plain(text: bytes) -> bytes:
    """What a server lets through in a first line."""
    return bytes(byte for byte in text if 0x20 < byte < 0x7F)


def _header(line: bytes) -> tuple[bytes, bytes]:
    """The same for a header."""
    name, _, value = line.partition(b":")
    return _plain(name).lower(), bytes(byte for byte in value if byte >= 0x20 and byte != 0x7F).strip()


def _request(first: bytes, *headers: bytes, body: bytes = b"") -> bytes:
    return b"\n".join((first, *headers)) + b"\n\n" + body
