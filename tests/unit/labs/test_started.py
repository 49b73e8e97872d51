"""A lab in a learner's folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from unstarve.errors import UsageError
from unstarve.labs.all_labs import NAMES, lab_named
from unstarve.labs.started import start, started_in


@pytest.mark.parametrize("name", NAMES)
def test_a_lab_is_copied_whole_and_read_back(name: str, tmp_path: Path) -> None:
    started = start(name, tmp_path / "lab", seed=7)
    for file in started.lab.files:
        assert (tmp_path / "lab" / file).read_bytes() == (started.lab.folder / file).read_bytes()
        executable = os.access(started.lab.folder / file, os.X_OK)
        assert os.access(tmp_path / "lab" / file, os.X_OK) == executable
    assert started_in(tmp_path / "lab") == started
    asked = {question.key for question in started.lab.questions}
    if started.lab.faults:
        asked |= set(started.lab.keys("verdict"))
    if started.lab.cases:
        asked |= set(started.lab.keys("prediction"))
    assert set(started.answers()) == asked


@pytest.mark.parametrize("name", NAMES)
def test_every_file_of_a_lab_exists_and_every_fault_is_drawn(name: str) -> None:
    lab = lab_named(name)
    assert lab.files[0] == "README.md"
    assert sorted(lab.files) == sorted(path.name for path in lab.folder.iterdir() if path.is_file())
    drawn = {fault for seed in range(200) for fault in lab.drawn(seed)}
    assert drawn == set(lab.faults)
    assert lab.hints


def test_another_draw_is_made_each_time(tmp_path: Path) -> None:
    seeds = {start("io-dataloader", tmp_path / str(number)).seed for number in range(5)}
    assert len(seeds) == 5


def test_a_folder_with_files_is_left_alone_unless_forced(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="is not empty"):
        start("io-dataloader", tmp_path)
    start("io-dataloader", tmp_path, force=True)
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_an_unknown_name_brings_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean io-dataloader"):
        start("io-dataloder", tmp_path / "lab")


def test_a_state_that_was_changed_by_hand_is_refused(tmp_path: Path) -> None:
    started = start("io-dataloader", tmp_path, force=True)
    started.commit("cpu")
    state = tmp_path / "lab.toml"
    state.write_text(state.read_text().replace('verdict = "cpu"', 'verdict = "remote"'))
    with pytest.raises(UsageError, match="was changed by hand"):
        started_in(tmp_path)


@pytest.mark.parametrize("text", ["", "name = 3", "\x00", 'name = "io-dataloader"\nseed = "x"\nseal = ""\n'])
def test_a_damaged_state_is_one_sentence(text: str, tmp_path: Path) -> None:
    (tmp_path / "lab.toml").write_text(text)
    with pytest.raises(UsageError, match=r"lab\.toml"):
        started_in(tmp_path)


def test_a_folder_without_a_lab_says_how_to_begin(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unstarve lab start NAME"):
        started_in(tmp_path)
