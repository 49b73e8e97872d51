"""From tuned loaders to changes of the user's files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from unstarve.advise.patch.files import file_digest
from unstarve.advise.patch.plan import patches_for
from unstarve.model import LoaderSettings, Place, Trial, Tuning
from unstarve.model.tune_run import TunedLoader

OWN, BEST = LoaderSettings(0), LoaderSettings(4, 2)
TUNING = Tuning(
    None, OWN, BEST, (Trial(BEST, "measured", 9, 1.0, 1, 1, 1, None),), None, False, "", True, 9, 1.0
)


@pytest.fixture
def script(tmp_path: Path) -> Path:
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
    assert "makes loaders of 2 datasets" in problems[0]


def test_a_loader_from_nowhere_is_not_changed(script: Path) -> None:
    problems = patches_for([replace(loader(script, 1), place=None), replace(loader(script, 1), digest=None)])[
        1
    ]
    assert ["not known" in problem for problem in problems] == [True, True]
