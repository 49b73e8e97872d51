"""From tuned loaders to changes of the user's files."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from unstarve.advise.patch.file_patches import file_digest, patches_for
from unstarve.model import LoaderSettings, Maker, Place, Trial, Tuning
from unstarve.model.tune_run import TunedLoader

OWN, BEST = LoaderSettings(0), LoaderSettings(4, 2)
TUNING = Tuning(
    None, OWN, BEST, (Trial(BEST, "measured", 9, 1.0, 1, 1, 1, None),), None, False, "", True, 9, 1.0
)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text("a = DataLoader(x)\nb = DataLoader(y)\nc = DataLoader(*z)\n")
    return path


def loader(script: Path, line: int) -> TunedLoader:
    return TunedLoader(
        f"loader {line}", "DataLoader", Place(str(script), line), file_digest(script), 1, 9, TUNING
    )


def test_all_loaders_of_a_file_make_one_patch(script: Path) -> None:
    patches, problems = patches_for([loader(script, 1), loader(script, 2)])
    assert problems == []
    assert [patch.after.decode().splitlines()[:2] for patch in patches] == [
        ["a = DataLoader(x, num_workers=4)", "b = DataLoader(y, num_workers=4)"]
    ]


def test_what_is_wrong_with_one_does_not_cost_the_others(script: Path) -> None:
    patches, problems = patches_for([loader(script, 1), loader(script, 3)])
    assert len(patches) == 1
    assert len(problems) == 1
    assert "line 3: num_workers and prefetch_factor may be hidden" in problems[0]


def test_settings_to_keep_change_nothing(script: Path) -> None:
    kept = replace(loader(script, 1), tuning=replace(TUNING, keep=True, chosen=OWN))
    assert patches_for([kept, replace(kept, tuning=None)]) == ([], [])


def test_a_line_that_makes_the_loaders_of_several_datasets_is_not_changed(script: Path) -> None:
    patches, problems = patches_for([replace(loader(script, 1), datasets=2)])
    assert patches == []
    assert "creates loaders of 2 datasets" in problems[0]


def test_a_loader_from_nowhere_is_not_changed(script: Path) -> None:
    problems = patches_for([replace(loader(script, 1), place=None), replace(loader(script, 1), digest=None)])[
        1
    ]
    assert ["unknown" in problem for problem in problems] == [True, True]


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (
            "accelerate/data_loader.py",
            "use DataLoader(…, num_workers=4, prefetch_factor=2) "
            "(in the call that you pass to accelerator.prepare), or save",
        ),
        (
            "transformers/trainer.py",
            "use TrainingArguments(dataloader_num_workers=4, dataloader_prefetch_factor=2), or save",
        ),
        (
            "timm/data/loader.py",
            "use create_loader(…, num_workers=4) (timm cannot set prefetch_factor), or save",
        ),
        (
            "lightning/fabric/utilities/data.py",
            "use DataLoader(…, num_workers=4, prefetch_factor=2) (in your LightningModule or",
        ),
        (
            "their_library.py",
            "use num_workers=4, prefetch_factor=2 (where your code calls their_library), or save",
        ),
    ],
)
def test_an_installed_library_is_not_changed_and_its_own_words_say_what_to_set(
    script: Path, file: str, words: str
) -> None:
    installed = script.parent / ".venv" / "lib" / "python3.11" / "site-packages" / file
    installed.parent.mkdir(parents=True)
    installed.write_text(script.read_text())
    patches, (problem,) = patches_for([loader(installed, 1)])
    assert patches == []
    assert words in problem
    assert f"site-packages/{file} belongs to an installed package" in problem
    assert "unstarve run --with FILE.toml" in problem


@pytest.mark.parametrize("mark", ["pyvenv.cfg", "conda-meta"])
def test_an_environment_in_the_project_is_not_the_users(script: Path, mark: str) -> None:
    inside = script.parent / "env" / "src" / "tool" / "train.py"
    inside.parent.mkdir(parents=True)
    inside.write_text(script.read_text())
    assert patches_for([loader(inside, 1)])[1] == []
    (script.parent / "env" / mark).mkdir()
    patches, (problem,) = patches_for([loader(inside, 1)])
    assert (patches, "belongs to an installed package" in problem) == ([], True)


def test_the_project_is_the_repository_around_the_working_folder(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (script.parent / "sub").mkdir()
    monkeypatch.chdir(script.parent / "sub")
    patches, (problem,) = patches_for([loader(script, 1)])
    assert patches == []
    assert f"train.py is outside your project {script.parent / 'sub'}: set num_workers=4" in problem
    assert "in line 1 yourself" in problem
    (script.parent / ".git").mkdir()
    assert len(patches_for([loader(script, 1)])[0]) == 1


def test_a_file_that_is_read_only_or_another_users_is_not_changed(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.chmod(0o444)
    assert "train.py is read-only: set" in patches_for([loader(script, 1)])[1][0]
    script.chmod(0o644)
    monkeypatch.setattr(os, "geteuid", lambda: script.stat().st_uid + 1)
    assert "train.py belongs to another user: set" in patches_for([loader(script, 1)])[1][0]


def test_images_in_a_library_have_no_words_but_a_file(script: Path) -> None:
    installed = script.parent / "site-packages" / "timm.py"
    installed.parent.mkdir()
    installed.write_text(script.read_text())
    tuned = replace(TUNING, chosen=replace(BEST, part="images"))
    (problem,) = patches_for([replace(loader(installed, 1), tuning=tuned)])[1]
    assert "change: save the settings with --save FILE.toml" in problem


def test_a_loader_that_a_framework_creates_is_changed_in_its_own_words(script: Path) -> None:
    made = loader(script, 1)
    place = replace(made.place, maker=Maker("transformers", "Trainer.get_train_dataloader"))
    patches, (problem,) = patches_for([replace(made, place=place)])
    assert patches == []
    assert "transformers creates this loader: use TrainingArguments(dataloader_num_workers=4, " in problem


def test_a_loader_that_lightning_asks_a_method_for_is_changed_there(script: Path) -> None:
    made = loader(script, 1)
    place = replace(made.place, maker=Maker("lightning", "Digits.train_dataloader"))
    patches, problems = patches_for([replace(made, place=place)])
    assert (len(patches), problems) == (1, [])
