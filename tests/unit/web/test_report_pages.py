"""Pages of reports are kept until their run's files change."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from clocked_runs import write_run
from unstarve.web import report_pages
from unstarve.web.report_pages import ReportPages
from unstarve.web.run_folder import open_folder
from web_client import threaded_jobs


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs whose page was made, in order."""
    names: list[str] = []

    def make(path: Path) -> str:
        names.append(path.name)
        return f"page {len(names)}"

    monkeypatch.setattr(report_pages, "report_html", make)
    return names


def test_a_page_is_made_once_until_its_run_changes(folder: Path, made: list[str]) -> None:
    path = write_run(folder / "a.unstarve")

    async def open_it() -> list[str]:
        pages = ReportPages(threaded_jobs())
        found = [await pages.page(open_folder(folder).find("a.unstarve")) for _ in range(2)]
        with path.open("ab") as file:
            file.write(b"more")
        return [*found, await pages.page(open_folder(folder).find("a.unstarve"))]

    assert asyncio.run(open_it()) == ["page 1", "page 1", "page 2"]


def test_the_oldest_page_makes_room(folder: Path, made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_pages, "_MOST_PAGES", 2)
    for name in "abc":
        write_run(folder / f"{name}.unstarve")

    async def open_all() -> None:
        pages = ReportPages(threaded_jobs())
        for name in "abaca":
            await pages.page(open_folder(folder).find(f"{name}.unstarve"))

    asyncio.run(open_all())
    assert made == ["a.unstarve", "b.unstarve", "c.unstarve"]


def test_only_large_runs_are_made_ready(
    folder: Path, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = open_folder(write_run(folder / "a.unstarve").parent).find("a.unstarve")

    async def ready() -> None:
        pages = ReportPages(threaded_jobs())
        await pages.make_ready(entry)
        assert not made
        monkeypatch.setattr(report_pages, "_LARGE_BYTES", entry.size)
        await pages.make_ready(entry)
        assert made == ["a.unstarve"]
        await pages.page(entry)

    asyncio.run(ready())
    assert made == ["a.unstarve"]
