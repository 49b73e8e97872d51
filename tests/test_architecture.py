"""What the package promises about itself: light imports and one place for public names."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

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
