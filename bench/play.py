"""Train one case of the zoo, as a user's script would: ``python bench/play.py NAME``.

It works in the current folder. The last line of the output is the truth, measured by the script itself.
"""

from __future__ import annotations

import sys

from zoo import CASES
from zoo.truth import Truth


def main() -> None:
    by_name = {case.name: case for case in CASES}
    if len(sys.argv) != 2 or sys.argv[1] not in by_name:
        sys.exit(f"usage: python bench/play.py NAME, where NAME is one of: {', '.join(by_name)}")
    case = by_name[sys.argv[1]]
    truth = Truth()
    case.train(truth, **case.arguments)
    print(truth.line(), flush=True)


if __name__ == "__main__":
    main()
