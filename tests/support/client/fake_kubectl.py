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
                {"addresses": ["10.1.0.5"], "conditions": {"ready": True}, "targetRef": {"name": "fleet-5"}},
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
answers = json.loads((here / "answers").read_text())
if words[0] == "port-forward":
    import os, time
    said = answers.get("port-forward") or {}
    if "error" in said:
        sys.exit(said["error"])
    (here / "forwarding").write_text(str(os.getpid()))
    if "address" in said:
        print(f"Forwarding from {said['address']} -> {words[-1][1:]}", flush=True)
    for _ in range(said.get("connections", 0)):
        print("Handling connection for 1", flush=True)
    (here / "told").touch()
    time.sleep(said.get("seconds", 60))
    sys.exit("error: lost connection to pod")
answer = answers.get(words[1])
if answer is None:
    answer = {"error": "error: You must be logged in to the server (Unauthorized)"}
if "error" in answer:
    sys.exit(answer["error"])
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
            "port-forward": {"address": "127.0.0.1:40001"},
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

    def forwarding(self) -> int:
        """The process id of the port-forward that was started last; 0: none was."""
        path = self.program.parent / "forwarding"
        return int(path.read_text()) if path.exists() else 0

    def asked(self) -> list[list[str]]:
        log = self.program.parent / "asked"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
