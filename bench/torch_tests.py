"""PyTorch's own DataLoader tests: what passes with torch's loader passes with ours and under `unstarve run`.

The test file is not part of this project. It is `test/test_dataloader.py` of pytorch/pytorch, or
`test/stateful_dataloader/test_dataloader.py` of pytorch/data, which runs the same tests through torchdata's
loader. A copy in which only the import of `DataLoader` differs runs three times, each in a separate process
and temporary folder: with torch's loader, with ours, and with torch's under `unstarve run`. Tests that fail
only in the last two are run again, because some of them depend on timing.

    pip install expecttest
    python bench/torch_tests.py PATH_TO_TEST_FILE [-k EXPRESSION] [--timeout SECONDS] [--jobs N]

It prints the tests whose outcomes differ, and exits with 1 if one passes only with torch's loader.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

_TORCH, _OURS = "from torch.utils.data import DataLoader", "from unstarve import DataLoader"
WAYS = {"torch": _TORCH, "unstarve": _OURS, "recorded": _TORCH}
"""How the tests are run, and which loader they import."""
_TORCHDATA = "from torchdata.stateful_dataloader import StatefulDataLoader as DataLoader"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path, help="PyTorch's test file")
    parser.add_argument("-k", default="", help="run only matching tests, like pytest's -k")
    parser.add_argument("--timeout", type=float, default=3000, help="seconds for each of the three runs")
    parser.add_argument("--jobs", type=int, default=1, help="tests in parallel, with pytest-xdist")
    given = parser.parse_args()
    source = given.path.read_text()
    arguments = ["-k", given.k] if given.k else []
    if given.jobs > 1:
        arguments += ["-n", str(given.jobs)]
    outcomes = {}
    for way in WAYS:
        outcomes[way] = run(source, way, arguments, given.timeout)
        counts = Counter(outcomes[way].values())
        print(f"{way:9s}", *(f"{n} {outcome}" for outcome, n in counts.items()), flush=True)
    lost = 0
    for way in ("unstarve", "recorded"):
        worse = differences(outcomes["torch"], outcomes[way], way)
        if worse:
            names = sorted({test.partition(".")[2] for test in worse})
            again = run(source, way, ["-k", " or ".join(names)], given.timeout)
            worse = {test for test in worse if again.get(test) != "passed"}
        for test in sorted(worse):
            print(f"lost: {test} passes with torch's loader, not {way}")
        lost += len(worse)
    print(f"{lost} lost" if lost else "pass: no test passes only with torch's loader")
    return 1 if lost else 0


def differences(theirs: dict[str, str], ours: dict[str, str], way: str) -> set[str]:
    """Print the differences; return the tests that pass with torch's loader but not this way."""
    for test in sorted(theirs.keys() | ours.keys()):
        if theirs.get(test) != ours.get(test):
            print(f"  {test}: torch {theirs.get(test)}, {way} {ours.get(test)}")
    return {test for test, outcome in theirs.items() if outcome == "passed" and ours.get(test) != "passed"}


def run(source: str, way: str, arguments: list[str], timeout_s: float) -> dict[str, str]:
    """Run a copy of the file this way; return "passed", "failed" or "skipped" by test."""
    with tempfile.TemporaryDirectory() as folder:
        copy, report = Path(folder, "test_with_loader.py"), Path(folder, "report.xml")
        copy.write_text(with_loader(source, WAYS[way]))
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        if way == "recorded":
            command = [sys.executable, "-m", "unstarve", "run", "-o", f"{folder}/tests.unstarve", *command]
        done = subprocess.run(
            [*command, *arguments, str(copy)],
            check=False,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        if not report.exists():
            raise SystemExit(f"pytest wrote no report for {way}:\n{done.stdout[-3000:]}{done.stderr[-1000:]}")
        cases = list(ET.parse(report).iter("testcase"))
        broken = [case for case in cases if case.find("error") is not None and not case.get("classname")]
        if broken:
            raise SystemExit(f"the file cannot be collected for {way}:\n{done.stdout[-3000:]}")
    return {
        f"{case.get('classname', '?').rpartition('.')[2]}.{case.get('name')}": outcome_of(case)
        for case in cases
    }


def with_loader(source: str, import_line: str) -> str:
    """Return the file with another loader under the name `DataLoader`."""
    if _TORCHDATA in source:
        return source.replace(_TORCHDATA, import_line)
    first_class = re.search(r"^(@|class )", source, re.MULTILINE)
    if first_class is None:
        raise SystemExit("this file contains no tests")
    at = first_class.start()
    return f"{source[:at]}{import_line}\n\n\n{source[at:]}"


def outcome_of(case: ET.Element) -> str:
    if case.find("skipped") is not None:
        return "skipped"
    return "failed" if case.find("failure") is not None or case.find("error") is not None else "passed"


if __name__ == "__main__":
    sys.exit(main())
