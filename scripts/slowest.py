"""Prints the tests that took longest when each ran last (`make slowest`): slowest.py [how many]."""

import json
import sys
from pathlib import Path

DURATIONS = Path(".pytest_cache/v/sandfleet/durations")


def main(count: int = 20) -> int:
    try:
        seconds: dict[str, float] = json.loads(DURATIONS.read_text())
    except FileNotFoundError:
        print("cannot say which tests are slow: none has run here (make test)", file=sys.stderr)
        return 1
    for name, taken in sorted(seconds.items(), key=lambda item: -item[1])[:count]:
        print(f"{taken:8.2f} s  {name}")
    print(f"{sum(seconds.values()):8.2f} s  all {len(seconds)} tests")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*map(int, sys.argv[1:2])))
