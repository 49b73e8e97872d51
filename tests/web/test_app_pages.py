"""`unstarve serve` as a reader meets it: in a browser, from a real port."""

from __future__ import annotations

import base64
import functools
import shutil
import threading
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from clocked_runs import write_run
from hostile_names import hostile_run
from unstarve.record.run_file import finish
from web_client import served

LONGEST_S = 60
HOSTILE = "<img src=x onerror=window.broken=1>&amp;\u2028\u202e.unstarve"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "runs"
    path.mkdir()
    write_run(path / "before.unstarve", wait_ms=6, step_ms=4)
    write_run(path / "after.unstarve", wait_ms=0, step_ms=10)
    return path


@pytest.fixture
def address(folder: Path) -> Iterator[str]:
    """Where the folder is served."""
    with served(folder) as port:
        yield f"http://127.0.0.1:{port}"


def opened_list(opened: Any, address: str, runs: int) -> Any:
    """The list, once all is known about that many runs."""
    page = opened.page
    page.set_default_timeout(LONGEST_S * 1000)
    page.goto(address)
    page.wait_for_selector(f"tbody tr:nth-child({runs})")
    page.wait_for_selector(".reading", state="detached")
    return page


def names(page: Any) -> list[str]:
    return list(page.eval_on_selector_all("tbody td.name a", "found => found.map(one => one.textContent)"))


@pytest.mark.parametrize("opened", [(1200, "light"), (400, "dark")], indirect=True, ids=str)
def test_all_runs_are_listed_whatever_they_are_called_and_hold(
    opened: Any, address: str, folder: Path
) -> None:
    shutil.copy(folder / "before.unstarve", folder / HOSTILE)
    (folder / "broken.unstarve").write_bytes(b"nothing that unstarve wrote")
    page = opened_list(opened, address, 4)
    assert sorted(names(page)) == sorted(["before.unstarve", "after.unstarve", "broken.unstarve", HOSTILE])
    text = page.inner_text("table").lower()
    assert all(word in text for word in ("starved", "fed", "unreadable", "800 samples/s", "2.50×"))
    assert page.evaluate("window.broken") is None
    assert page.query_selector("img") is None
    wide = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert wide[0] == wide[1], "the page scrolls sideways"
    page.fill("[type=search]", "STARVED")
    assert names(page) == [HOSTILE, "before.unstarve"] or names(page) == ["before.unstarve", HOSTILE]
    assert opened.complaints == []
    assert {url.split("/")[2] for url in opened.requests if url.startswith("http")} == {address[7:]}


def test_a_run_is_opened_and_two_are_compared_and_the_way_leads_back(opened: Any, address: str) -> None:
    page = opened_list(opened, address, 2)
    page.click("text=before.unstarve")
    page.wait_for_selector("#page[data-ready] #timeline")
    page.click("a.logo")
    assert page.wait_for_selector("#compare").is_disabled()
    for name in ("after", "before"):
        page.check(f"[aria-label='compare {name}.unstarve']")
    page.click("#compare")
    page.wait_for_selector("#A-timeline")
    assert page.url.endswith("/compare?a=before.unstarve&b=after.unstarve")  # the older one is A
    assert opened.complaints == []


def test_a_run_is_deleted_only_when_that_is_confirmed_by_keyboard_too(
    opened: Any, address: str, folder: Path
) -> None:
    page = opened_list(opened, address, 2)
    page.focus("[aria-label='delete before.unstarve']")
    for answer in ("Escape", "Enter"):  # away, and the button that has the focus: keep it
        page.keyboard.press("Enter")
        assert "before.unstarve" in page.inner_text("dialog")
        page.keyboard.press(answer)
        page.wait_for_selector("dialog", state="detached")
        assert (folder / "before.unstarve").exists()
    page.keyboard.press("Enter")
    page.click("dialog .danger")
    page.wait_for_selector("text=Deleted: before.unstarve")
    page.wait_for_selector("[data-id='before.unstarve']", state="detached")
    assert [path.name for path in folder.iterdir()] == ["after.unstarve"]
    assert opened.complaints == []


def test_run_files_are_added_by_choosing_and_by_dropping(
    opened: Any, address: str, folder: Path, tmp_path: Path
) -> None:
    page = opened_list(opened, address, 2)
    chosen = write_run(tmp_path / "chosen.unstarve")
    page.set_input_files("#upload-file", str(chosen))
    page.wait_for_selector("text=Added: chosen.unstarve")
    content = base64.b64encode(chosen.read_bytes()).decode()
    files = page.evaluate_handle(
        """([content, name]) => {
            const held = new DataTransfer();
            held.items.add(new File([Uint8Array.from(atob(content), (one) => one.charCodeAt(0))], name));
            held.items.add(new File(["no run"], "notes.unstarve"));
            return held;
        }""",
        [content, HOSTILE.replace("\u202e", "").replace("\u2028", "")],
    )
    page.dispatch_event("body", "dragover", {"dataTransfer": files})
    page.dispatch_event("body", "drop", {"dataTransfer": files})
    page.wait_for_selector("text=/Added: <img.*Not added: notes.unstarve: .*not an unstarve run file/")
    page.wait_for_selector("tbody tr:nth-child(4)")
    assert len(list(folder.iterdir())) == 4
    assert page.evaluate("window.broken") is None
    assert [said for said in opened.complaints if "422" not in said] == []  # the browser tells of refusals


def test_a_running_training_is_watched_until_it_ends(opened: Any, address: str, folder: Path) -> None:
    now = write_run(folder / "now.unstarve", steps=40, end=False)
    page = opened_list(opened, address, 3)
    page.wait_for_selector("[data-id='now.unstarve'] .state-running")
    page.click("text=now.unstarve")
    page.wait_for_selector("#verdict.state-running")
    assert "40\nsteps so far" in page.inner_text("#verdict")
    finish(now, 0)
    page.wait_for_selector("text=The run has ended.")
    assert "finished" in page.inner_text("#verdict .badge").lower()
    page.click("text=Open the report")
    page.wait_for_selector("#page[data-ready] #timeline")
    assert opened.complaints == []


def test_a_run_full_of_hostile_names_is_text_on_every_page(opened: Any, address: str, folder: Path) -> None:
    hostile_run(folder / "bad.unstarve")
    page = opened_list(opened, address, 3)
    for path in ("/run/bad.unstarve", "/compare?a=bad.unstarve&b=before.unstarve"):
        page.goto(address + path)
        page.wait_for_selector("#page[data-ready]")
        if path.startswith("/run"):
            assert "</script><img src=x onerror=window.broken=1>" in page.inner_text("body")
        assert page.query_selector("#page img") is None
        assert page.evaluate("window.broken") is None
    page.goto(f"{address}/live/bad.unstarve")
    page.wait_for_selector("text=The run has ended.")
    assert page.query_selector("#page img") is None
    assert page.evaluate("window.broken") is None
    assert opened.complaints == []


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """A page of another site, of which only the link's address is given."""
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()

        def linked(address: str) -> str:
            # A new name each time: a browser may show the cached page of a name it knows.
            number = len(list(tmp_path.glob("page*.html")))
            (tmp_path / f"page{number}.html").write_text(f'<a href="{address}">there</a>')
            return (
                f"http://localhost:{server.server_address[1]}/page{number}.html"  # not the site of 127.0.0.1
            )

        yield linked
        server.shutdown()


def test_the_token_opens_the_door_from_the_terminal_and_from_a_page_elsewhere(
    opened: Any, folder: Path, elsewhere: Callable[[str], str]
) -> None:
    page = opened.page
    with served(folder, token="t" * 20) as port:
        address = f"http://127.0.0.1:{port}"
        page.goto(address)
        assert "open the URL with the token" in page.inner_text("#refusal")
        page.goto(f"{address}/?token={'t' * 20}")
        page.wait_for_selector("tbody tr:nth-child(2)")
        assert page.url == f"{address}/"
        page.goto(elsewhere(f"{address}/run/before.unstarve"))
        page.click("text=there")
        page.wait_for_selector("#page[data-ready] #timeline")
        page.context.clear_cookies()
        page.goto(elsewhere(f"{address}/run/before.unstarve?token={'t' * 20}"))
        page.click("text=there")
        page.wait_for_selector("#page[data-ready] #timeline")
        assert page.url == f"{address}/run/before.unstarve"
        page.click("a.logo")
        page.click("[aria-label='delete before.unstarve']")
        page.click("dialog .danger")
        page.wait_for_selector("[data-id='before.unstarve']", state="detached")
        page.context.clear_cookies()
        page.goto(elsewhere(f"{address}/"))
        page.click("text=there")
        page.wait_for_selector("#refusal")
