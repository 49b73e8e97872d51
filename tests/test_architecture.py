"""What the package promises about itself: light imports and one place for public names."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import types
import typing
from pathlib import Path
from typing import Any

import pytest
import torch

import unstarve

SOURCE = Path(unstarve.__file__).parent


def modules_after(code: str) -> set[str]:
    """Modules that are loaded once a fresh interpreter has run `code`."""
    script = f"{code}\nimport sys; sys.stderr.write(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "code",
    [
        "import unstarve",
        "from unstarve.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass",
        "from unstarve.cli import main\ntry: main(['run', '--help'])\nexcept SystemExit: pass",
        "from unstarve.cli import main\ntry: main(['check', '--help'])\nexcept SystemExit: pass",
        "import unstarve.pytest_plugin",
        "import unstarve.web.server",
        "import unstarve; unstarve.load_run, unstarve.diagnose, unstarve.compare",
    ],
)
def test_what_needs_no_torch_does_not_import_it(code: str) -> None:
    modules = modules_after(code)
    assert "unstarve" in modules
    assert "torch" not in modules


def test_importing_unstarve_loads_none_of_its_parts() -> None:
    assert {name for name in modules_after("import unstarve") if name.startswith("unstarve.")} == set()


def test_every_public_name_exists_and_is_documented() -> None:
    for name in unstarve.__all__:
        value = getattr(unstarve, name)
        assert name == "__version__" or value.__doc__, f"{name} has no docstring"
    assert dir(unstarve) == sorted(unstarve.__all__)


def test_type_checkers_see_the_same_public_names() -> None:
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imported = {
        alias.asname for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert imported | {"__version__"} == set(unstarve.__all__)


def test_what_public_functions_return_can_be_imported() -> None:
    hidden = {
        f"{name}.{function.__name__} returns {found.__name__}"
        for name in unstarve.__all__
        for function in public_functions(getattr(unstarve, name))
        for found in classes_in(
            typing.get_type_hints(function, inspect.unwrap(function).__globals__ | {"torch": torch})["return"]
        )
        if found.__module__.startswith("unstarve") and found.__name__ not in unstarve.__all__
    }
    assert hidden == set()


def public_functions(value: Any) -> list[Any]:
    """The function itself, or the public methods and properties of a class that are not inherited."""
    members = (
        [m for n, m in vars(value).items() if not n.startswith("_")] if inspect.isclass(value) else [value]
    )
    found = [m.fget if isinstance(m, property) else getattr(m, "__func__", m) for m in members]
    return [f for f in found if inspect.isfunction(f) and "return" in f.__annotations__]


def classes_in(hint: Any) -> set[type]:
    """Classes that an annotation names, also inside of others."""
    if isinstance(hint, type) and not isinstance(hint, types.GenericAlias):
        return {hint}
    return {found for inner in typing.get_args(hint) for found in classes_in(inner)}


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="DataLoder"):
        _ = unstarve.DataLoder


def test_no_file_grows_past_what_a_reader_can_hold() -> None:
    long = {p.name: n for p in SOURCE.rglob("*.py") if (n := len(p.read_text().splitlines())) > 400}
    assert long == {}


def test_every_broad_except_says_why() -> None:
    silent = []
    for path in SOURCE.rglob("*.py"):
        lines = path.read_text().splitlines()
        for node in ast.walk(ast.parse(path.read_text())):
            broad = isinstance(node, ast.ExceptHandler) and (
                node.type is None
                or (isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException"))
            )
            reraises = broad and any(isinstance(n, ast.Raise) and n.exc is None for n in ast.walk(node))
            if broad and not reraises and "#" not in lines[node.lineno - 1]:
                silent.append(f"{path.name}:{node.lineno}")
    assert silent == []


def test_torch_is_patched_in_one_place() -> None:
    found = {
        str(path.relative_to(SOURCE)): patches
        for path in sorted(SOURCE.rglob("*.py"))
        if (patches := patches_of_torch(path.read_text()))
    }
    assert set(found) == {"launch/patching.py", "launch/requested.py"}, found


@pytest.mark.parametrize(
    "source",
    [
        "from torch.utils.data import DataLoader\nDataLoader.__iter__ = f",
        "from torch.utils.data import dataloader as stock\nstock.DataLoader.__init__ = f",
        "import torch\ntorch.utils.data.DataLoader.prefetch = 3",
        "import torch\nsetattr(torch.utils.data, 'DataLoader', f)",
        "from torch.utils import data\ncls: Any = data.DataLoader\ncls.workers = 1",
        "from torch.utils import data\nfor cls in (data.A, data.B):\n    cls.workers = 1",
        "from torch.utils import data\nwith patched(data):\n    del data.DataLoader.__iter__",
        "def wrap(cls):\n    cls.fetch = f",
        "def wrap(cls, name):\n    setattr(cls, name, f)",
        "def wrap(anything):\n    anything.__next__ = f",
    ],
)
def test_patches_of_torch_are_recognized(source: str) -> None:
    assert patches_of_torch(source)


@pytest.mark.parametrize(
    "source",
    [
        "self.fetch = f",
        "setattr(self._loader, name, value)",
        "import torch\nx = torch.zeros(3)\nx.grad = None",
        "import queue\nqueue.limit = 3",
    ],
)
def test_what_does_not_patch_torch_is_not_taken_for_it(source: str) -> None:
    assert not patches_of_torch(source)


def patches_of_torch(source: str) -> list[int]:
    """Lines that assign to or delete an attribute of a class or module of torch, or of any class.

    Names count as torch's when they are imported from there or stand for a part of such a name.
    """
    tree = ast.parse(source)
    names: set[str] = {"cls"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            parts = [alias for alias in node.names if alias.name.split(".")[0] == "torch"]
            names |= {alias.asname or "torch" for alias in parts}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _is_of(node.value, names):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and node.value is not None and _is_of(node.value, names):
            names |= {node.target.id} if isinstance(node.target, ast.Name) else set()
        elif isinstance(node, ast.For) and isinstance(node.target, ast.Name):
            items = node.iter.elts if isinstance(node.iter, ast.Tuple) else []
            names |= {node.target.id} if any(_is_of(item, names) for item in items) else set()
    return sorted(node.lineno for node in ast.walk(tree) if _patches(node, names))


def _is_of(node: ast.expr, names: set[str]) -> bool:
    """Whether it is one of these names, or an attribute of one."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id in names


def _patches(node: ast.AST, names: set[str]) -> bool:
    targets: list[ast.expr] = []
    if isinstance(node, (ast.Assign, ast.Delete)):
        targets = node.targets
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
        targets = [node.target]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
        return node.func.id in ("setattr", "delattr") and not _is_of(node.args[0], {"self"})
    return any(
        isinstance(target, ast.Attribute)
        and not _is_of(target, {"self"})
        and (_is_of(target.value, names) or target.attr in PATCHED_METHODS)
        for target in targets
    )


PATCHED_METHODS = {"__init__", "__iter__", "__next__", "__init_subclass__", "__call__", "_get_iterator"}


def test_every_file_that_the_guide_for_contributors_names_exists() -> None:
    repository = SOURCE.parents[1]
    guide = (repository / "CONTRIBUTING.md").read_text()
    named = set(re.findall(r"`((?:[a-z_.]+/)*[a-z_]+(?:\.py|/))`", guide))
    assert len(named) > 30
    places = (repository, SOURCE)
    assert {name for name in named if not any((place / name).exists() for place in places)} == set()
