"""Tokenizers that were used before the fork, with a stand-in for the library that warns as it does."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SCRIPT = """
import os, sys, types
from torch.utils.data import DataLoader

library = types.ModuleType("tokenizers")
library.used = False

class Tokenizer:
    def encode_batch(self, texts):
        library.used = True
        return [len(text) for text in texts]

def after_fork():
    if library.used and "TOKENIZERS_PARALLELISM" not in os.environ:
        os.write(2, b"The current process just got forked, after parallelism has already been used.")

library.Tokenizer = Tokenizer
sys.modules["tokenizers"] = library
os.register_at_fork(after_in_child=after_fork)

class Fast:
    def __init__(self):
        self._tokenizer = Tokenizer()

    def __call__(self, texts):
        return self._tokenizer.encode_batch(texts)

class Collate:
    def __init__(self):
        self.tokenizer = Fast()

    def __call__(self, texts):
        return self.tokenizer(texts)

from tests.helpers.checked import findings

collate = Collate()
loader = DataLoader(["a", "b"], collate_fn=collate, num_workers=2)
assert findings(loader) == []
collate(["a"])
for found in findings(loader):
    print(found.id, found.message)
"""


@pytest.mark.parametrize("is_set", [False, True])
def test_a_tokenizer_that_was_used_is_found(is_set: bool) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TOKENIZERS_PARALLELISM"}
    if is_set:
        environment["TOKENIZERS_PARALLELISM"] = "false"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT)],
        cwd=Path(__file__).parents[4],  # `-c` imports from there: tests.helpers
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    sentence = (
        "tokenizer-before-fork train_loader.collate_fn.tokenizer has used its threads,"
        " so 2 workers will turn them off and print a warning each.\n"
    )
    assert done.stdout == ("" if is_set else sentence)
    assert "parallelism" not in done.stderr
