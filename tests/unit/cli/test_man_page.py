"""The manual page holds the whole command line and is sound for groff."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from tools.man_page import man_page, roff

from unstarve.cli.reference import verb_references


def test_every_verb_and_option_is_in_it() -> None:
    sections = man_page().split('.SS "unstarve ')[1:]
    for text, verb in zip(sections, verb_references(), strict=True):
        assert text.startswith(f'{verb.name}"\n')
        for option in verb.options[:-1]:
            assert roff(option.names[-1]) in text
        for example in verb.examples:
            assert roff(example.line) in text


def test_text_is_not_taken_for_a_request() -> None:
    assert roff(".so /etc/passwd") == "\\&.so /etc/passwd"
    assert roff("'a'") == "\\&'a'"
    assert roff("C:\\new, `--json -`") == "C:\\enew, \\fB\\-\\-json \\-\\fR"


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_groff_has_nothing_to_say() -> None:
    command = ["groff", "-K", "utf8", "-man", "-ww", "-Tutf8", "-z"]
    said = subprocess.run(command, input=man_page(), capture_output=True, text=True, check=True)
    assert said.stderr == ""
