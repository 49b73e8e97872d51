"""Saved loader settings: what is written is read again, and what makes no sense is one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from hostile_names import EVERYTHING, STEERING
from unstarve.errors import OutputError, SettingsFileError
from unstarve.model import Place, SavedLoader
from unstarve.record.settings_file import read_saved, write_saved

GOOD = '[[loader]]\nfile = "train.py"\nline = 3\n[loader.settings]\nnum_workers = 2\n'


def test_settings_survive_the_file(tmp_path: Path) -> None:
    script = tmp_path / "src" / 'odd "name".py'
    script.parent.mkdir()
    script.touch()
    saved = [
        SavedLoader(
            Place(str(script), 41, "Trainer.fit", "train_loader", "0123456789ab"),
            {"num_workers": 8, "prefetch_factor": 4, "persistent_workers": True},
        ),
        SavedLoader(Place("/elsewhere/a.py", 1), {"pin_memory": False}),
        SavedLoader(Place("/elsewhere/a.py", 9, dataset="Images[50]", nth=2), {"num_workers": 3}),
        SavedLoader(Place("/elsewhere/b.py", 2), {"num_workers": 3, "images": True}),
    ]
    path = tmp_path / "tuned.toml"
    write_saved(path, saved, "two lines\nof remarks")
    assert read_saved(path) == tuple(saved)
    assert path.read_text().startswith("# two lines\n# of remarks\nformat = 1\n")
    assert str(tmp_path) not in path.read_text()
    assert set(tmp_path.iterdir()) == {path, script.parent}


def test_a_hostile_name_in_the_remarks_stays_a_remark(tmp_path: Path) -> None:
    saved = [SavedLoader(Place("/elsewhere/a.py", 1, name=STEERING[0] + "\x85"), {"num_workers": 3})]
    write_saved(tmp_path / "tuned.toml", saved, f"{EVERYTHING}\rformat = 9")
    assert read_saved(tmp_path / "tuned.toml") == tuple(saved)


def test_a_name_that_is_not_unicode_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SettingsFileError, match="not Unicode"):
        write_saved(tmp_path / "tuned.toml", [SavedLoader(Place("\udc80.py", 1), {"num_workers": 3})])
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_lies_elsewhere_goes_by_how_its_path_ends(tmp_path: Path) -> None:
    path = tmp_path / "tuned.toml"
    path.write_text(GOOD)
    assert read_saved(path)[0].place == Place("train.py", 3)
    (tmp_path / "train.py").touch()
    assert read_saved(path)[0].place == Place(str(tmp_path / "train.py"), 3)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x = = 1", "not valid TOML"),
        ("", r"no \[\[loader\]\]"),
        ("loader = 3", r"no \[\[loader\]\]"),
        ("format = 9\n" + GOOD, "has format 9"),
        ("colour = 1\n" + GOOD, "unknown key 'colour'"),
        (GOOD + "batch_size = 9", "loader 1: unknown key 'batch_size'"),
        (GOOD.replace("line = 3\n", ""), "line is missing"),
        (GOOD.replace("= 3", '= "3"'), "line must be a whole number"),
        (GOOD.replace('"train.py"', "7"), "file must be text"),
        (GOOD.replace("[loader.settings]\nnum_workers = 2\n", ""), r"\[loader.settings\] with arguments"),
        (GOOD.replace("num_workers = 2\n", ""), "is empty"),
        (GOOD.replace("= 2", "= -1"), "num_workers must be a whole number from 0 to 1024, got -1"),
        (GOOD.replace("= 2", "= true"), "num_workers must be a whole number"),
        (GOOD.replace("= 2", "= 2.5"), "num_workers must be a whole number"),
        (GOOD + "prefetch_factor = 0", "prefetch_factor must be a whole number from 1"),
        (GOOD + "pin_memory = 1", "pin_memory must be true or false, got 1"),
        (GOOD.replace("= 2", "= 0") + "prefetch_factor = 2", "prefetch_factor needs workers"),
        (GOOD.replace("= 2", "= 0") + "persistent_workers = true", "persistent_workers needs workers"),
        (GOOD.replace("= 2", "= 0") + "images = true", "num_workers is the number of threads"),
        (GOOD.replace("= 2", "= 0") + "threads = true", "num_workers is the number of threads"),
        (GOOD + "images = true\ncached = true", "images and cached exclude each other"),
        (GOOD + "images = 2", "images must be true or false, got 2"),
        (GOOD + GOOD.replace("= 2", "= 'a'"), "loader 2: num_workers"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "tuned.toml"
    path.write_text(text)
    with pytest.raises(SettingsFileError, match=why) as caught:
        read_saved(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_file_and_no_folder_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SettingsFileError, match="cannot read"):
        read_saved(tmp_path / "none.toml")
    with pytest.raises(OutputError, match="cannot write"):
        write_saved(tmp_path / "none" / "a.toml", [])
