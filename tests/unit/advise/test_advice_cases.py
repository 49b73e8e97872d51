"""The scripts of bench/advice.py: advice can be pasted into each of them."""

from __future__ import annotations

import pytest
from advice_cases import CASES

from pasted import pasted


@pytest.mark.parametrize("id", list(CASES))
def test_a_case_is_a_script_whose_loader_can_be_replaced(id: str) -> None:
    case = CASES[id]
    compile(case.script, id, "exec")
    source = f"DataLoader(dataset, {case.loader})"
    report = {"loaders": [{"statement": "loader = ", "source": source}]}
    code = f"import unstarve\n\nloader = unstarve.{source}"
    changed = pasted(case.script, report, code)
    compile(changed, id, "exec")
    assert f"    loader = unstarve.{source}\n" in changed
    assert case.followed != case.script
    compile(case.followed, id, "exec")
