"""Where a loader was made, and the call that made it."""

from __future__ import annotations

from pathlib import Path

import pytest

from unstarve.collect.call_site import call_source, iterated_name, workers_option


def found(tmp_path: Path, text: str, line: int, kind: str = "DataLoader") -> str | None:
    path = tmp_path / "train.py"
    path.write_text(text)
    return call_source(str(path), line, kind)


@pytest.mark.parametrize(
    ("text", "line", "source"),
    [
        ("a = DataLoader(ds, batch_size=2)\n", 1, "DataLoader(ds, batch_size=2)"),
        ("x = 1\nfor b in data.DataLoader(ds): pass\n", 2, "data.DataLoader(ds)"),
        ("a = {\n    'x': DataLoader(\n        ds,  # it's :)\n        n=[1, (2)],\n    ),\n}\n", 2,
         "DataLoader(\n        ds,  # it's :)\n        n=[1, (2)],\n    )"),
        ("    a = DataLoader(Data('('), f(1))[0]\n", 1, "DataLoader(Data('('), f(1))"),
        ("a = DataLoader[int](ds)\n", 1, "DataLoader[int](ds)"),
        ("    super().__init__(ds, num_workers=2)\n", 1, "super().__init__(ds, num_workers=2)"),
        ("a = wrap(StatefulDataLoader(ds))\n", 1, "StatefulDataLoader(ds)"),
        ("été = DataLoader(données, 2)\n", 1, "DataLoader(données, 2)"),
    ],
)  # fmt: skip
def test_the_call_is_kept_as_it_was_written(tmp_path: Path, text: str, line: int, source: str) -> None:
    assert found(tmp_path, text, line) == source


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a, b = DataLoader(x), DataLoader(y)\n", 1),
        ("a = make()\n", 1),
        ("a = DataLoader(ds,\n", 1),
        ("a = DataLoader('unclosed)\n", 1),
        ("a = 1\n", 9),
        ("a = 1\n", 0),
        (f"a = DataLoader({'x' * 1000})\n", 1),
        ("a = DataLoader(ds, ==)\n", 1),
    ],
)
def test_a_call_that_is_not_sure_is_not_kept(tmp_path: Path, text: str, line: int) -> None:
    assert found(tmp_path, text, line) is None


def test_a_class_of_the_users_own_is_found_by_its_name(tmp_path: Path) -> None:
    assert found(tmp_path, "a = Feeder(ds, f(2))\n", 1, "Feeder") == "Feeder(ds, f(2))"
    assert found(tmp_path, "a = Feeder(ds)\n", 1) is None


def test_a_file_that_is_not_there_has_no_call() -> None:
    assert call_source("<stdin>", 1, "DataLoader") is None


TIMM = """
parser.add_argument('-j', '--workers', type=int)
loader = create_loader(
    dataset,
    num_workers=args.workers,
)
other = create_loader(dataset, num_workers=args.threads)
third = create_loader(dataset, num_workers=4)
fourth = create_loader(dataset, **options)
"""


@pytest.mark.parametrize(
    ("line", "option"), [(3, "--workers"), (7, None), (8, None), (9, "--workers"), (99, None)]
)
def test_the_option_of_the_command_line_is_one_that_the_script_defines(
    tmp_path: Path, line: int, option: str | None
) -> None:
    path = tmp_path / "train.py"
    path.write_text(TIMM)
    assert workers_option(str(path), line) == option


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("for x, y in train_set:", "train_set"),
        ("    for step, x in enumerate(tqdm.tqdm(self.batches, total=9)):", "batches"),
        ("for x in make(rows):", None),
        ("for x in DataLoader(rows, 4):", None),
        ("for x in rows.batch(4):", None),
        ("batches = iter(rows)", None),
    ],
)
def test_a_loop_names_what_it_goes_through(tmp_path: Path, line: str, name: str | None) -> None:
    path = tmp_path / "train.py"
    path.write_text(f"{line}\n")
    assert iterated_name(str(path), 1) == name
