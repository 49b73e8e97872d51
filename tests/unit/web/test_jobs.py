"""What a job that fails looks like from outside, and that no page tells where on the machine a run lies."""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clocked_runs import write_run
from run_files import slow_loading_run
from run_files import write_run as write_made_up
from unstarve.errors import JobError, JobMemoryError, JobTimeoutError, ServerBusyError
from unstarve.web.job_pool import JobLimits, JobPool
from unstarve.web.private_paths import without_folders
from web_client import TestClient, listed


@pytest.mark.parametrize(
    ("error", "status"),
    [(JobTimeoutError, 504), (JobMemoryError, 422), (JobError, 422), (ServerBusyError, 503)],
)
def test_a_failed_job_is_one_sentence_with_a_fitting_status(
    client_for: Callable[..., TestClient], folder: Path, error: type[Exception], status: int
) -> None:
    async def fail(job: Callable[..., Any], *args: Any) -> Any:
        raise error(f"it failed at {args[0]}")

    run = write_run(folder / "a.unstarve").read_bytes()
    client = client_for(jobs=JobPool(JobLimits(background=1), fail))
    for address in ("/run/a.unstarve", "/compare?a=a.unstarve&b=a.unstarve"):
        page = client.get(address)
        assert page.status_code == status
        assert "<h1>it failed at …/a.unstarve</h1>" in page.text
    added = client.put("/api/runs?name=b.unstarve", content=run)
    assert added.status_code == status
    assert re.fullmatch(r"it failed at …/\.\w+\.uploading", added.json()["error"])
    assert [path.name for path in folder.iterdir()] == ["a.unstarve"]


def test_a_run_that_takes_too_long_for_the_list_says_so_there(
    client_for: Callable[..., TestClient], folder: Path
) -> None:
    asked: list[Path] = []

    async def fail(job: Callable[..., Any], path: Path) -> Any:
        asked.append(path)
        raise ServerBusyError("later") if len(asked) == 1 else JobTimeoutError("it took too long")

    write_run(folder / "a.unstarve")
    client = client_for(jobs=JobPool(JobLimits(background=1), fail))
    summary = listed(client)["a.unstarve"]["summary"]
    assert (summary["state"], summary["headline"]) == ("unreadable", "it took too long")
    listed(client)
    assert len(asked) == 2  # a busy server is asked again, a run that takes too long is not


def told(page: str) -> str:
    """The data in a page."""
    packed = re.search(r'id="data">([^<]*)<', page)
    assert packed is not None
    return zlib.decompress(base64.b64decode(packed[1]), -zlib.MAX_WBITS).decode()


def test_no_answer_reveals_a_folder_of_this_machine(client: TestClient, folder: Path) -> None:
    secret = "/home/secret/project"
    run = slow_loading_run(20, applied=f"{secret}/settings.toml")
    command = (f"{secret}/.venv/bin/python", f"{secret}/train.py", f"--data={secret}/images")
    write_run(folder / "b.unstarve", command=command)
    write_made_up(folder / "a.unstarve", _with_places(run, secret))
    (folder / "bad.unstarve").write_bytes(b"x")
    listed(client)
    answers = [
        client.get(address)
        for address in ("/", "/api/runs", "/run/bad.unstarve", "/api/runs/a.unstarve/live")
    ]
    pages = [
        client.get(address)
        for address in ("/run/a.unstarve", "/run/b.unstarve", "/compare?a=a.unstarve&b=b.unstarve")
    ]
    assert all(page.status_code == 200 for page in pages)
    for text in [*(one.text for one in answers + pages), *(told(page.text) for page in pages)]:
        assert str(folder.parent) not in text
        assert secret not in text
    assert "…/train.py:41" in told(pages[0].text)
    assert '"path":"a.unstarve"' in told(pages[0].text)


def _with_places(run: Any, secret: str) -> Any:
    main, *workers = run.processes
    loaders = tuple(replace(one, where=f"{secret}/train.py:41") for one in main.loaders)
    lost = (f"{secret}/x is gone",)
    return replace(run, processes=(replace(main, loaders=loaders, lost=lost), *workers))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/me/train.py:41", "…/train.py:41"),
        ("--data=/mnt/a/b --out=/tmp/x/", "--data=…/b --out=…/x"),
        ("PATH=/a/b:/c/d", "PATH=…/b:…/d"),
        ("/opt/conda/lib/python3.11/site-packages/torch/utils/data/x.py:3", "torch/utils/data/x.py:3"),
        ("/usr/lib/python3.11/json/decoder.py", "json/decoder.py"),
        ("file:///home/me/x", "…/x"),
        ("see http://example.com/a/b and s3://bucket/a/b", "see http://example.com/a/b and s3://bucket/a/b"),
        (
            "/dev/shm/x, src/a/b.py, ~/a/b, 3/4, and/or, /data",
            "/dev/shm/x, src/a/b.py, ~/a/b, 3/4, and/or, /data",
        ),
        ("FileNotFoundError(2, 'none', '/home/me/x y')", "FileNotFoundError(2, 'none', '…/x y')"),
    ],
)
def test_a_path_is_cut_to_its_end(text: str, shown: str) -> None:
    assert without_folders(text) == shown
