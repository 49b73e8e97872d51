"""``python -m unstarve.benchmark``: the same as ``unstarve bench``."""

import sys

from unstarve.cli import main

main(["bench", *sys.argv[1:]])
