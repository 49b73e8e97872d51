"""Who may ask for what."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from clocked_runs import write_run
from unstarve.web.guard import ServerAccess
from unstarve.web.server import address_of
from web_client import TestClient

WIDE = ServerAccess("0.0.0.0", 5000, "0.0.0.0", token="right")
COOKIE = "unstarve-5000"


@pytest.mark.parametrize("host", ["127.0.0.1:5000", "localhost:8080", "localhost", "[::1]:5000", "127.9.9.9"])
def test_host_names_of_this_machine_are_accepted(client: TestClient, host: str) -> None:
    assert client.get("/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "", "[", "a@localhost.x",
     "2130706433.evil"],
)  # fmt: skip
def test_a_foreign_host_name_that_resolves_here_is_refused(client: TestClient, host: str) -> None:
    answer = client.get("/api/runs", headers={"host": host})
    assert answer.status_code == 400
    assert "runs" not in answer.json()


def test_beyond_loopback_only_addresses_and_the_own_name_are_accepted() -> None:
    assert ServerAccess("127.0.1.1", 5000, "gpu17").knows("gpu17:5000")
    assert not ServerAccess("127.0.1.1", 5000, "gpu17").knows("gpu17.evil.example:5000")
    access = ServerAccess("0.0.0.0", 5000, "gpu17", token="t")
    assert all(
        access.knows(host) for host in ("10.0.0.5:5000", "gpu17", "gpu17.lab.example:5000", "localhost")
    )
    assert not any(access.knows(host) for host in ("evil.example", "", "["))


@pytest.mark.parametrize(
    "headers",
    [{"origin": "http://evil.example"}, {"origin": "null"}, {"origin": "http://127.0.0.1:3000"},
     {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}, {"sec-fetch-site": "none"},
     {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"},
     {"sec-fetch-site": "same-origin", "origin": "http://evil.example"}],
)  # fmt: skip
def test_no_other_sites_page_can_write(client: TestClient, folder: Path, headers: dict[str, str]) -> None:
    path = write_run(folder / "a.unstarve")
    assert client.delete("/api/runs/a.unstarve", headers=headers).status_code == 403
    put = client.put("/api/runs?name=b.unstarve", headers=headers, content=path.read_bytes())
    assert put.status_code == 403
    assert [one.name for one in folder.iterdir()] == ["a.unstarve"]


def test_our_own_page_and_a_program_can_write(client: TestClient, folder: Path) -> None:
    write_run(folder / "a.unstarve")
    write_run(folder / "b.unstarve")
    ours = {"origin": "http://127.0.0.1:5000", "sec-fetch-site": "same-origin"}
    assert client.delete("/api/runs/a.unstarve", headers=ours).status_code == 204
    assert client.delete("/api/runs/b.unstarve").status_code == 204


def test_another_sites_page_may_link_here_but_not_read(client: TestClient) -> None:
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert client.get("/", headers=link).status_code == 200
    embed = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
    assert client.get("/api/runs", headers=embed).status_code == 403


def test_every_answer_has_the_security_headers(client: TestClient) -> None:
    for address in ("/", "/app.js", "/api/runs", "/nothing", "/run/none"):
        headers = client.get(address).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers
    assert client.get("/api/runs", headers={"host": "evil.example"}).headers["x-frame-options"] == "DENY"


def test_without_the_token_nothing_is_revealed(client_for: Callable[..., TestClient], folder: Path) -> None:
    client = client_for(WIDE)
    write_run(folder / "secret.unstarve")
    for address in (
        "/",
        "/api/runs",
        "/run/secret.unstarve",
        "/app.js",
        "/?token=wrong",
        "/?token=",
        "/none",
    ):
        answer = client.get(address)
        assert answer.status_code == 401
        assert "secret" not in answer.text
        assert "set-cookie" not in answer.headers
    assert client.get("/app.css").status_code == 200  # the page that says so is not to look broken
    assert client.delete("/api/runs/secret.unstarve").status_code == 401
    assert client.delete("/api/runs/secret.unstarve?token=right").status_code == 401


def test_the_token_is_needed_once_and_leaves_the_address(client_for: Callable[..., TestClient]) -> None:
    client = client_for(WIDE)
    first = client.get("/compare?a=1&token=right&b=2")
    assert first.status_code == 303
    assert first.headers["location"] == "/compare?a=1&b=2"
    cookie = first.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert client.get("/api/runs").status_code == 200
    client.cookies.clear()
    client.cookies.set(COOKIE, "wrong")
    assert client.get("/api/runs").status_code == 401


LINK = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}


def test_a_link_from_elsewhere_is_redirected_by_our_own_page_so_that_the_cookie_is_sent(
    client_for: Callable[..., TestClient],
) -> None:
    client = client_for(WIDE)
    first = client.get("/run/a?token=right", headers=LINK)
    assert first.status_code == 200
    assert 'http-equiv="refresh" content="0; url=/run/a"' in first.text
    assert "right" not in first.text
    assert client.get("/run/a").status_code == 404  # the cookie is there
    client.cookies.clear()
    without = client.get('/run/a?x=">', headers=LINK)
    assert without.status_code == 401
    assert 'content="0; url=/run/a?x=%22%3E"' in without.text
    again = client.get("/run/a", headers={**LINK, "sec-fetch-site": "same-origin"})
    assert again.status_code == 401
    assert "refresh" not in again.text


def test_a_program_sends_the_token_in_a_header(client_for: Callable[..., TestClient]) -> None:
    client = client_for(WIDE)
    assert client.get("/api/runs", headers={"authorization": "Bearer right"}).status_code == 200
    for wrong in ("Bearer wrong", "Basic right", "right", "Bearer", b"Bearer \xff"):
        assert client.get("/api/runs", headers={"authorization": wrong}).status_code == 401


@pytest.mark.parametrize(
    "path", ["//evil.example/x", "/\\evil.example", "/%5cevil.example", "///evil.example"]
)
def test_the_redirect_after_the_token_never_leaves_the_server(
    client_for: Callable[..., TestClient], path: str
) -> None:
    location = client_for(WIDE).get(f"http://127.0.0.1:5000{path}?token=right").headers["location"]
    assert location.startswith("/")
    assert not location.startswith(("//", "/\\"))


def test_the_printed_url_holds_the_token_if_there_is_one() -> None:
    assert address_of(ServerAccess("127.0.0.1", 5000, "127.0.0.1")) == "http://127.0.0.1:5000/"
    assert address_of(ServerAccess("::1", 80, "::1", "t")) == "http://[::1]:80/?token=t"
    assert address_of(ServerAccess("10.0.0.5", 5000, "gpu17", "t")) == "http://gpu17:5000/?token=t"
    assert "0.0.0.0" not in address_of(WIDE)
