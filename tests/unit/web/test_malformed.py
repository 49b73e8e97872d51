"""Requests that no browser sends: each is refused, and none takes the server down or makes it fail."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from clocked_runs import write_run
from web_client import LONGEST_S, served

TOKEN = "t" * 20
BEARER = f"Authorization: Bearer {TOKEN}"


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("runs")
    write_run(folder / "a.unstarve")
    with served(folder, token=TOKEN) as port:
        yield port


def answer(port: int, request: bytes) -> bytes:
    """All that comes back until the server hangs up."""
    with socket.create_connection(("127.0.0.1", port), LONGEST_S) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def status(said: bytes) -> int:
    return int(said.split(b" ", 2)[1])


def request(line: str = "GET /api/runs HTTP/1.1", *headers: str, host: str | None = "localhost") -> bytes:
    named = () if host is None else (f"Host: {host}",)
    lines = [line, *named, BEARER, "Connection: close", *headers]
    return "".join(f"{one}\r\n" for one in [*lines, ""]).encode("latin-1")


def test_a_plain_request_is_answered(port: int) -> None:
    assert status(answer(port, request())) == 200


@pytest.mark.parametrize(
    "origin",
    ["http://[", "http://]", "http://", "http://[::1", "://", "\xff", "http://localhost@evil.example",
     "http://localhost:99999999", "http://localhost.evil.example", "null", "javascript:alert(1)",
     "http://\u00e9\u00e8", "http://localhost%00", "http://" + "a" * 5000],
)  # fmt: skip
def test_an_origin_that_is_not_ours_or_none_is_refused(port: int, origin: str) -> None:
    assert status(answer(port, request("GET /api/runs HTTP/1.1", f"Origin: {origin}"))) == 403


@pytest.mark.parametrize(
    "host",
    ["[", "]", "[::1", "localhost:", "localhost:x", "localhost:999999", "a@localhost", "localhost/x",
     "localhost?x", "localhost#x", "loc\xe4lhost", "localhost localhost", "localhost,evil", "", None,
     "[::1%25eth0]", "127.0.0.1.", "0x7f.1", "127.1"],
)  # fmt: skip
def test_an_invalid_or_foreign_host_is_refused(port: int, host: str | None) -> None:
    assert status(answer(port, request(host=host))) == 400


@pytest.mark.parametrize(
    "headers",
    [("Host: localhost",), ("Host: evil.example",), ("Origin: http://localhost", "Origin: http://evil.example"),
     ("Sec-Fetch-Site: same-origin", "Sec-Fetch-Site: cross-site"), (BEARER,),
     ("Content-Length: 1", "Content-Length: 2"), ("Content-Length: -1",), ("Content-Length: x",),
     ("Content-Length: 1e3",), ("Content-Length: \xb2",), ("Content-Length: " + "9" * 5000,),
     ("Transfer-Encoding: chunked", "Transfer-Encoding: gzip"), (": nothing",), ("No colon",), ("A: \0",)],
)  # fmt: skip
def test_invalid_headers_are_refused(port: int, headers: tuple[str, ...]) -> None:
    assert 400 <= status(answer(port, request("GET /api/runs HTTP/1.1", *headers))) < 500


@pytest.mark.parametrize(
    ("line", "expected"),
    [("GET /run/%00 HTTP/1.1", 404), ("GET /run/%ff%fe HTTP/1.1", 404), ("GET /run/%zz HTTP/1.1", 404),
     ("GET /run/% HTTP/1.1", 404), ("GET /run/%ed%a0%80 HTTP/1.1", 404), ("GET //[ HTTP/1.1", 404),
     ("GET http://[/ HTTP/1.1", 404), ("GET /run/" + "a" * 9000 + " HTTP/1.1", 404), ("GET * HTTP/1.1", 404),
     ("GET /compare?a=%00&b=%ff HTTP/1.1", 404), ("GET /compare?a=&a=&&&=%zz HTTP/1.1", 404),
     ("GET /run/../../etc/passwd HTTP/1.1", 404), ("GET /run/..%2f..%2fetc%2fpasswd HTTP/1.1", 404),
     ("PUT /api/runs?name=%00.unstarve HTTP/1.1", 400), ("PUT /api/runs?name=%ff HTTP/1.1", 400),
     ("PUT /api/runs?name=" + "a" * 9000 + ".unstarve HTTP/1.1", 400), ("PUT /api/runs HTTP/1.1", 400),
     ("DELETE /api/runs/%00 HTTP/1.1", 404), ("POST / HTTP/1.1", 405), ("BREW / HTTP/1.1", 405),
     ("GET /", 400), ("GET  / HTTP/1.1", 400), ("GET /\xff HTTP/1.1", 400)],
)  # fmt: skip
def test_addresses_that_lead_nowhere_are_refused(port: int, line: str, expected: int) -> None:
    said = answer(port, request(line))
    assert status(said) == expected
    assert b"Traceback" not in said


@pytest.mark.parametrize(
    "bytes_range", ["bytes=0-0", "bytes=-", "bytes=9-1", "lines=x", "bytes=" + "0-1," * 3000]
)
def test_range_headers_are_ignored(port: int, bytes_range: str) -> None:
    assert status(answer(port, request("GET /app.js HTTP/1.1", f"Range: {bytes_range}"))) == 200


@pytest.mark.parametrize(
    "cookie", ["", ";", "=", "unstarve-1", "\xff=\xff", "a=" + "b" * 5000, "unstarve-1=\xff"]
)
def test_malformed_cookies_are_not_accepted_as_a_token(port: int, cookie: str) -> None:
    plain = request("GET /api/runs HTTP/1.1", f"Cookie: {cookie}")
    assert status(answer(port, plain.replace(BEARER.encode(), b"X: y"))) == 401
