"""A real browser for the pages: Chromium as the system has it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]

LONGEST_MS = 180_000


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=LONGEST_MS)
        yield browser
        browser.close()


class Opened:
    """A page, what it complained about and whom it tried to reach."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    def show(self, file: Path) -> Any:
        self.page.goto(file.as_uri())
        self.page.wait_for_selector("#page[data-ready]")
        return self.page


@pytest.fixture
def opened(browser: Any, request: pytest.FixtureRequest) -> Iterator[Opened]:
    width, theme = getattr(request, "param", (1100, "light"))
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
    page.set_default_timeout(LONGEST_MS)
    yield Opened(page)
    page.close()
