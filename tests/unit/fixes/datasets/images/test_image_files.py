"""The files of a batch are read in one call, and come as if each had been read alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from unstarve.errors import ImageError
from unstarve.fixes.datasets.images import image_files
from unstarve.fixes.datasets.images.image_files import read_images
from unstarve.fixes.io.reading import Names


@pytest.fixture(params=["native", "python"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "python":
        monkeypatch.setattr(image_files, "native", lambda: None)


def written(folder: Path, contents: Sequence[bytes]) -> list[str]:
    paths = [folder / f"{number}.jpg" for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return [str(path) for path in paths]


def content_of(paths: Sequence[str]) -> list[Any]:
    names = Names(paths)
    return [one if isinstance(one, ImageError) else bytes(one) for one in read_images(names, names.starts)]


@pytest.mark.usefixtures("way")
def test_every_file_comes_whole_and_in_order(tmp_path: Path) -> None:
    contents = [bytes([number]) * (1000 * number) for number in range(30)]  # the first one is empty
    assert content_of(written(tmp_path, contents)) == contents


@pytest.mark.usefixtures("way")
def test_what_is_not_a_file_is_an_error_in_its_place(tmp_path: Path) -> None:
    paths = written(tmp_path, [b"some"] * 6)
    Path(paths[2]).unlink()
    os.mkfifo(paths[2])
    found = content_of(paths)
    assert found[:2] + found[3:] == [b"some"] * 5
    assert isinstance(found[2], ImageError)


@pytest.mark.usefixtures("way")
def test_a_missing_file_raises_and_is_named(tmp_path: Path) -> None:
    paths = written(tmp_path, [b"some"] * 6)
    Path(paths[4]).unlink()
    with pytest.raises(FileNotFoundError, match=r"4\.jpg"):
        content_of(paths)


@pytest.mark.usefixtures("way")
def test_too_large_a_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_files, "MAX_FILE_BYTES", 100)
    found = content_of(written(tmp_path, [b"x" * 100, b"x" * 101, b"y", b"z"]))
    assert found[0] == b"x" * 100
    assert "the limit is 100" in str(found[1])


def test_a_file_that_changes_its_size_meanwhile_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = written(tmp_path, [b"before"] * 6)
    read_plan = image_files.reading.read_plan

    def grows_first(*arguments: Any, **options: Any) -> Any:
        Path(paths[3]).write_bytes(b"and after")
        return read_plan(*arguments, **options)

    monkeypatch.setattr(image_files.reading, "read_plan", grows_first)
    assert content_of(paths)[3] == b"and after"


def test_files_that_come_from_storage_are_read_by_many_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_files, "_FIRST", 4)
    monkeypatch.setattr(image_files, "threads_here", lambda: 2)
    blocks = iter(range(100))
    monkeypatch.setattr(image_files, "_blocks_read", lambda: next(blocks))
    used: list[int] = []
    read_plan = image_files.reading.read_plan

    def noted(*arguments: Any, **options: Any) -> Any:
        used.append(options["threads"])
        return read_plan(*arguments, **options)

    monkeypatch.setattr(image_files.reading, "read_plan", noted)
    contents = [bytes([number + 1]) * 10 for number in range(9)]
    assert content_of(written(tmp_path, contents)) == contents
    assert used[-1] > 1
