"""The demo as a whole."""

import json
import subprocess
import sys
from collections.abc import Iterator

from figures import Figure, progress

SESSIONS = 20


def figures() -> Iterator[Figure]:
    progress(f"the demo with {SESSIONS} sessions")
    command = [sys.executable, "-m", "sandfleet", "demo", "--sessions", str(SESSIONS), "--json"]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    summary = json.loads(done.stdout)
    yield Figure(
        "demo sessions", summary["sessions_per_second"], "1/s", note="whole agent sessions, sandboxes included"
    )
