"""Advice as a person follows it: the printed code replaces the loader's statement in the script."""

from __future__ import annotations

from typing import Any

import pytest

_SHELL = "# once, in a shell: "


def advice_in(report: dict[str, Any], id: str) -> dict[str, Any]:
    """The advice with this id; an error that lists what there is instead.

    Skips the test where the machine was so busy that waiting for a core hid everything else.
    """
    found = [one for one in report["advice"] if one["id"] == id]
    if not found and report["verdict"]["cause"] == "contention":
        pytest.skip("other processes took the cores")
    assert found, ([one["id"] for one in report["advice"]], report["rejected"], report["verdict"])
    return found[0]


def shell_commands(code: str) -> list[str]:
    """The commands that the advice says to run once, before training."""
    return [line.removeprefix(_SHELL) for line in code.splitlines() if line.startswith(_SHELL)]


def pasted(script: str, report: dict[str, Any], code: str, loader: int = 0) -> str:
    """The script with the printed code in place of the loader's statement, and its import at the top."""
    made = report["loaders"][loader]
    old = made["statement"] + made["source"]
    assert script.count(old) == 1, old
    imports, new = ("", code) if "\n\n" not in code else code.split("\n\n", 1)
    line_start = script.rfind("\n", 0, script.index(old)) + 1
    indent = script[line_start : script.index(old)]
    assert not indent.strip(), f"the statement does not begin its line: {indent!r}"
    lines = new.splitlines()
    indented = "\n".join([lines[0], *(indent + line if line else line for line in lines[1:])])
    return imports + "\n" + script.replace(old, indented)
