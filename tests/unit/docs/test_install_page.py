"""The page on installing names every extra."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_every_extra_is_in_the_table() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    rows = re.findall(r"^\| (`.*?`) \|", (ROOT / "docs/install.md").read_text(), re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(.*?)`", row)} == set(
        project["optional-dependencies"]
    )
