"""Runs lanes N times while other programs keep all cores busy, and prints which tests failed how often.

flakes.py N LANE… [-- arguments for pytest]; exits with 1 if a test failed.
"""

import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree as ET

FOLDERS = {"pure": ("tests/unit", "tests/transition", "tests/chart"), "smoke": ("tests/contract",)}
WHOLE = ("tests/unit", "tests/transition", "tests/chart", "tests/contract")


@contextmanager
def busy_cores() -> Iterator[None]:
    """A program without an end for each core, which the tests have to share with."""
    programs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def failures(report: Path) -> list[str]:
    """Names of the tests that failed, and of those whose set-up or end did."""
    cases = ET.parse(report).iter("testcase")
    return [
        f"{case.get('classname')}::{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]


def main(runs: int, lanes: list[str], arguments: list[str]) -> int:
    failed: Counter[str] = Counter()
    ended = 0
    with tempfile.TemporaryDirectory() as folder, busy_cores():
        for run in range(1, runs + 1):
            for lane in lanes:
                report = Path(folder, f"{run}-{lane}.xml")
                command = [sys.executable, "-m", "pytest", "-q", "-n", "3", "--dist", "loadfile", "--lane", lane]
                command += [f"--junitxml={report}", *arguments, *FOLDERS.get(lane, WHOLE)]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if not report.exists():
                    print(done.stdout + done.stderr, file=sys.stderr)
                    return 2
                names = failures(report)
                failed.update(names)
                ended += 1
                print(
                    f"run {run} of {runs}, {lane}: {len(names)} failed. {done.stdout.strip().splitlines()[-1]}",
                    flush=True,
                )
    for name, count in failed.most_common():
        print(f"{count:4} of {runs}  {name}")
    print(f"{len(failed)} tests failed in {ended} runs of {', '.join(lanes)}")
    return 1 if failed else 0


if __name__ == "__main__":
    words = sys.argv[1:]
    behind = words.index("--") if "--" in words else len(words)
    raise SystemExit(main(int(words[0]), words[1:behind], words[behind + 1 :]))
