"""Real trainings with the real packages, which `make test-frameworks` installs; skipped without them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.integration.conftest import Project, make_project

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test says by a mark which packages it needs."""
    for item in items:
        for mark in item.iter_markers("needs"):
            missing = [name for name in mark.args if not _is_installed(name)]
            if missing:
                item.add_marker(pytest.mark.skip(f"no {missing[0]}: make test-frameworks installs it"))


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # of a.b, there is no a
        return False


def framework_project(folder: Path) -> Project:
    """A folder with the scripts in it, in which nothing asks a network."""
    project = make_project(folder)
    for script in (HERE / "scripts").glob("*.py"):
        project.write(script.name, script.read_text())
    project.environment |= {
        "PYTHONPATH": str(HERE / "beside"),
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(folder / "hf"),
        "WANDB_MODE": "offline",
        "WANDB_SILENT": "true",
    }
    return project


@pytest.fixture(scope="module")
def frameworks(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A folder for all runs of a file."""
    return framework_project(tmp_path_factory.mktemp("frameworks"))
