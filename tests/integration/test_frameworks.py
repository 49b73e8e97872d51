"""Loaders that frameworks create are shown by the user's own line and by what they are."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from stand_in_frameworks import install_stand_ins


@pytest.fixture
def with_frameworks(project: Any) -> Any:
    project.environment["PYTHONPATH"] = str(install_stand_ins(project.folder))
    return project


def shown(project: Any, source: str, *options: str) -> dict[str, dict[str, Any]]:
    """Record the script; its loaders by name."""
    project.write("train.py", source)
    report = project.record(*options, "train.py")
    assert report["lost"] == []
    return {loader["name"]: loader for loader in report["loaders"]}


def line(project: Any, text: str) -> str:
    """Where the script has this text."""
    lines = (project.folder / "train.py").read_text().splitlines()
    (found,) = [number for number, one in enumerate(lines, 1) if text in one]
    return f"train.py:{found}"


TRAINER = """
from data import *
from transformers import Trainer

class MyTrainer(Trainer):
    pass

trainer = MyTrainer(Numbers(20), Numbers(8))
result = trainer.train()
"""


def test_a_trainers_loaders_are_named_by_what_they_are_for(with_frameworks: Any) -> None:
    loaders = shown(with_frameworks, TRAINER)
    assert set(loaders) == {"MyTrainer's train dataloader", "MyTrainer's eval dataloader"}
    train, evaluation = loaders["MyTrainer's train dataloader"], loaders["MyTrainer's eval dataloader"]
    assert train["where"] == evaluation["where"] == line(with_frameworks, "trainer.train()")
    assert train["maker"] == {
        "framework": "transformers",
        "function": "MyTrainer.get_train_dataloader",
        "option": None,
    }
    assert (train["source"], evaluation["source"]) == (None, None)
    # A Trainer creates its eval dataloader again for every evaluation: it is one loader all the same.
    assert (train["epochs"], evaluation["epochs"]) == (2, 2)


ACCELERATED = """
from data import *
from accelerate import Accelerator

train_loader = DataLoader(Numbers(20), batch_size=4)
val_loader = DataLoader(Numbers(8), batch_size=4)
train_loader, val_loader = Accelerator().prepare(train_loader, val_loader)
for epoch in range(2):
    for loader in (train_loader, val_loader):
        for batch in loader:
            pass
"""


def test_a_loader_that_accelerate_creates_again_is_the_users_own(with_frameworks: Any) -> None:
    loaders = shown(with_frameworks, ACCELERATED)
    assert {name: loader["where"] for name, loader in loaders.items()} == {
        "train_loader": line(with_frameworks, "Numbers(20)"),
        "val_loader": line(with_frameworks, "Numbers(8)"),
    }
    assert loaders["train_loader"]["source"] == "DataLoader(Numbers(20), batch_size=4)"
    assert loaders["train_loader"]["maker"] is None


TIMM = """
import argparse
from data import *
from timm.data import create_loader

parser = argparse.ArgumentParser()
parser.add_argument("-j", "--workers", type=int, default=0)
args = parser.parse_args()
loader_train = create_loader(
    Numbers(20), 4,
    is_training=True,
    num_workers=args.workers,
)
for batch in loader_train:
    pass
for batch in create_loader(Numbers(8), 4, num_workers=0):
    pass
"""


def test_timms_loaders_know_the_option_of_the_command_line(with_frameworks: Any) -> None:
    loaders = shown(with_frameworks, TIMM)
    train, evaluation = loaders["loader_train"], loaders["timm's eval loader"]
    assert train["where"] == line(with_frameworks, "loader_train = create_loader(")
    assert train["maker"] == {"framework": "timm", "function": "create_loader", "option": "--workers"}
    assert evaluation["maker"]["option"] is None
    assert evaluation["source"] == "create_loader(Numbers(8), 4, num_workers=0)"


@pytest.mark.parametrize("devices", [1, 2])
def test_lightnings_loaders_are_named_by_the_users_own_methods(with_frameworks: Any, devices: int) -> None:
    loaders = shown(
        with_frameworks,
        f"""
        from data import *
        import lightning as L

        class Digits(L.LightningDataModule):
            def train_dataloader(self):
                return self.make(20)
            def val_dataloader(self):
                return DataLoader(Numbers(8), batch_size=4)
            def make(self, count):
                return DataLoader(Numbers(count), batch_size=4)

        L.Trainer(devices={devices}).fit(Digits())
        """,
    )
    assert {name: loader["where"] for name, loader in loaders.items()} == {
        "Digits's train dataloader": line(with_frameworks, "Numbers(count)"),
        "Digits's val dataloader": line(with_frameworks, "Numbers(8)"),
    }
    train = loaders["Digits's train dataloader"]
    assert (train["maker"]["framework"], train["maker"]["function"]) == (
        "lightning",
        "Digits.train_dataloader",
    )
    assert train["source"] == "DataLoader(Numbers(count), batch_size=4)"


def test_other_libraries_are_named_and_a_class_of_theirs_is_called_by_the_user(with_frameworks: Any) -> None:
    loaders = shown(
        with_frameworks,
        """
        from data import *
        import otherlib

        def drain(loader):
            for batch in loader:
                pass

        made = otherlib.make_loader(Numbers(4))
        drain(made)
        graphs = otherlib.GraphLoader(Numbers(8), batch_size=4)
        drain(graphs)
        done = otherlib.Experiment().run(Numbers(12))
        """,
    )
    makers = {name: loader["maker"] and loader["maker"]["framework"] for name, loader in loaders.items()}
    assert makers == {"made": "otherlib", "graphs": None, "otherlib's val loader": "otherlib"}
    assert loaders["otherlib's val loader"]["where"] == line(with_frameworks, "Experiment()")
    assert loaders["graphs"]["source"] == "otherlib.GraphLoader(Numbers(8), batch_size=4)"


def test_an_installed_program_is_the_users_own(with_frameworks: Any) -> None:
    package = with_frameworks.folder / "env" / "lib" / "site-packages" / "program"
    package.mkdir()
    (package / "loaders.py").write_text("from data import *\n\ntrain_loader = DataLoader(Numbers(8))\n")
    (package / "train.py").write_text(
        "from program.loaders import train_loader\n\nfor batch in train_loader:\n    pass\n"
    )
    with_frameworks.environment["PYTHONPATH"] += f"{os.pathsep}{with_frameworks.folder}"
    (loader,) = with_frameworks.record("-m", "program.train")["loaders"]
    assert (loader["name"], loader["maker"]) == ("train_loader", None)
    assert loader["where"].endswith("program/loaders.py:3")


def test_saved_settings_go_to_the_trainers_loader_that_they_were_found_for(with_frameworks: Any) -> None:
    with_frameworks.write("train.py", TRAINER)
    number = line(with_frameworks, "trainer.train()").rpartition(":")[2]
    with_frameworks.write(
        "tuned.toml",
        f"""
        [[loader]]
        file = "train.py"
        line = {number}
        name = "MyTrainer's train dataloader"
        [loader.settings]
        num_workers = 2
        """,
    )
    loaders = shown(with_frameworks, TRAINER, "--with", "tuned.toml")
    assert {name: one["config"]["num_workers"] for name, one in loaders.items()} == {
        "MyTrainer's train dataloader": 2,
        "MyTrainer's eval dataloader": 0,
    }
    assert loaders["MyTrainer's train dataloader"]["config"]["applied"] == "num_workers 0 → 2"


def test_settings_saved_for_a_librarys_own_line_still_apply(with_frameworks: Any) -> None:
    library = with_frameworks.folder / "env" / "lib" / "site-packages" / "timm" / "data" / "loader.py"
    lines = library.read_text().splitlines()
    (number,) = [n for n, text in enumerate(lines, 1) if "loader_class(dataset" in text]
    with_frameworks.write(
        "tuned.toml",
        f"""
        [[loader]]
        file = "{library}"
        line = {number}
        function = "create_loader"
        name = "loader"
        [loader.settings]
        num_workers = 1
        """,
    )
    loaders = shown(with_frameworks, TIMM, "--with", "tuned.toml")
    assert [one["config"]["num_workers"] for one in loaders.values()] == [1, 1]


@pytest.mark.parametrize(
    ("source", "text", "name"),
    [
        (ACCELERATED, "Numbers(20)", "train_loader"),
        (TRAINER, "trainer.train()", "MyTrainer's train dataloader"),
    ],
    ids=["accelerate", "transformers"],
)
def test_tune_knows_the_users_own_line(with_frameworks: Any, source: str, text: str, name: str) -> None:
    with_frameworks.write("train.py", source)
    assert with_frameworks.unstarve("tune", "--json", "tuned.json", "train.py").returncode == 0
    loaders = json.loads((with_frameworks.folder / "tuned.json").read_text())["loaders"]
    places = {one["name"]: f"train.py:{one['place']['line']}" for one in loaders}
    assert len(places) == len(loaders) == 2
    assert places[name] == line(with_frameworks, text)


TWO = """
from data import *

def make(count):
    return DataLoader(Numbers(count), batch_size=4)

def loop(loader):
    for batch in loader:
        pass

train, val = [make(count) for count in COUNTS]
for epoch in range(2):
    loop(val)
    loop(train)
"""


def test_loaders_of_one_line_are_counted_in_the_order_of_creation(project: Any) -> None:
    loaders = shown(project, TWO.replace("COUNTS", "(20, 8)"))  # the second one is iterated first
    at = line(project, "return DataLoader")
    assert {name: loader["config"]["dataset_len"] for name, loader in loaders.items()} == {
        f"loader at {at} (1st of 2)": 20,
        f"loader at {at} (2nd of 2)": 8,
    }
    assert {loader["epochs"] for loader in loaders.values()} == {2}
    card = project.unstarve("report", "run.unstarve").stdout
    assert "Numbers[20]" in card
    assert "Numbers[8]" in card


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ('dataset = "Numbers[8]"', {20: 0, 8: 2}),
        ('dataset = "Numbers[20]"', {20: 2, 8: 0}),
        ("", {20: 2, 8: 2}),
    ],
)
def test_settings_go_to_the_loader_of_that_dataset(
    project: Any, entry: str, expected: dict[int, int]
) -> None:
    source = TWO.replace("COUNTS", "(20, 8)")
    project.write("train.py", source)
    number = line(project, "return DataLoader").rpartition(":")[2]
    project.write(
        "tuned.toml",
        f"[[loader]]\nfile = 'train.py'\nline = {number}\n{entry}\n[loader.settings]\nnum_workers = 2\n",
    )
    loaders = shown(project, source, "--with", "tuned.toml").values()
    assert {one["config"]["dataset_len"]: one["config"]["num_workers"] for one in loaders} == expected


def test_settings_go_to_the_second_loader_of_equal_datasets(project: Any) -> None:
    source = TWO.replace("COUNTS", "(8, 8)")
    project.write("train.py", source)
    number = line(project, "return DataLoader").rpartition(":")[2]
    project.write(
        "tuned.toml",
        f"[[loader]]\nfile = 'train.py'\nline = {number}\ndataset = 'Numbers[8]'\nnth = 2\n"
        "[loader.settings]\nnum_workers = 2\n",
    )
    loaders = shown(project, source, "--with", "tuned.toml")
    names = (f"loader at train.py:{number} (1st of 2)", f"loader at train.py:{number} (2nd of 2)")
    assert [loaders[name]["config"]["num_workers"] for name in names] == [0, 2]
