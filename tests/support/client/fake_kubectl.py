"""A kubectl that answers as a test says, and writes down what it was asked."""

from __future__ import annotations

import base64
import json
import sys
import time
from pathlib import Path

SLICES = {
    "items": [
        {
            "ports": [{"name": "grpc", "port": 8443}],
            "endpoints": [
                {"addresses": ["10.1.0.4"], "conditions": {"ready": False}},
                {"addresses": ["10.1.0.5"], "conditions": {"ready": True}},
            ],
        }
    ]
}
# Without what is installed: it starts faster.
KUBECTL = (
    f"#!{sys.executable} -IS"
    """
import json, pathlib, sys
here, words = pathlib.Path(__file__).parent, sys.argv[1:]
with (here / "asked").open("a") as log:
    print(json.dumps(words), file=log)
answer = json.loads((here / "answers").read_text()).get(words[1])
if answer is None:
    sys.exit('error: You must be logged in to the server (Unauthorized)')
print(answer if isinstance(answer, str) else json.dumps(answer))
"""
)


def a_token(ends: float) -> str:
    payload = base64.urlsafe_b64encode(json.dumps({"exp": ends}).encode()).rstrip(b"=").decode()
    return f"h.{payload}.s"


class Kubectl:
    def __init__(self, folder: Path) -> None:
        self.program = folder / "kubectl"
        self.program.write_text(KUBECTL)
        self.program.chmod(0o755)
        self.answers: dict[str, object] = {
            "configmap": {"data": {"ca.crt": "PEM"}},
            "endpointslices": SLICES,
            "view": {"contexts": [{"name": "here", "context": {"namespace": "team"}}]},
            "token": a_token(time.time() + 3600),
        }
        self.say()

    def point_to(self, address: str) -> None:
        """Say where the one pod of the fleet is."""
        host, _, port = address.rpartition(":")
        self.answers["endpointslices"] = {
            "items": [{"ports": [{"port": int(port)}], "endpoints": [{"addresses": [host]}]}]
        }
        self.say()

    def say(self, **changes: object) -> None:
        (self.program.parent / "answers").write_text(json.dumps({**self.answers, **changes}))

    def asked(self) -> list[list[str]]:
        log = self.program.parent / "asked"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
