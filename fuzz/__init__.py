"""Hostile input for everything that reads what others wrote: run files, data files, images, web requests.

    python -m fuzz [TARGET…] [--seconds N | --inputs N] [--seed S] [--keep DIR]

`targets/` has one file per target. The driver changes valid inputs, byte by byte and along their structure,
and feeds them to a child process with limits on time and memory: through the public API, and for native
readers also to programs built with sanitizers (`native/`). An input may be read, or refused with one of our
own errors. Anything else is a finding: another exception, a crash, too much time or memory.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CORPUS = ROOT / "tests" / "corpus"

sys.path.insert(0, str(ROOT / "tests" / "helpers"))  # seeds come from the helpers that tests use
