"""A real fleet process on this machine, for tests."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import grpc
from sandfleet_api.executor.v1 import interpreter_pb2, session_pb2
from sandfleet_api.executor.v1.interpreter_pb2_grpc import InterpreterServiceStub
from sandfleet_api.executor.v1.session_pb2_grpc import SessionServiceStub
from sandfleet_api.fleet.v1 import fleet_pb2 as pb
from sandfleet_api.fleet.v1.fleet_pb2_grpc import FleetServiceStub

PATIENCE = 60.0


class FleetProcess:
    """`serve-local` with its lifeline in our hand. `program`: what runs it."""

    def __init__(self, state_dir, *arguments, program=("-m", "sandfleet_operator.fleet")):
        self.state_dir = Path(state_dir)
        ready, ready_write = os.pipe()
        lifeline_read, self.lifeline = os.pipe()
        command = [sys.executable, *program, "serve-local", "--state-dir", str(state_dir)]
        fds = ["--ready-fd", str(ready_write), "--lifeline-fd", str(lifeline_read)]
        self.process = subprocess.Popen(
            [*command, *fds, *arguments], pass_fds=(ready_write, lifeline_read), stderr=subprocess.PIPE
        )
        os.close(ready_write)
        os.close(lifeline_read)
        with os.fdopen(ready, encoding="utf-8") as pipe:
            self.said = pipe.readline().strip()
        self.channel = grpc.insecure_channel(f"unix:{state_dir}/fleet.sock")
        self.stub = FleetServiceStub(self.channel)

    def claim(self, request_id="r1", **fields):
        """The claim's last word: bound."""
        request = pb.ClaimRequest(request_id=request_id, **fields)
        return list(self.stub.Claim(request, timeout=PATIENCE))[-1].bound

    def access(self, sandbox_id):
        return self.stub.Get(pb.GetRequest(sandbox_id=sandbox_id, with_access=True), timeout=PATIENCE)

    def release(self, sandbox_id):
        return self.stub.Release(pb.ReleaseRequest(sandbox_id=sandbox_id), timeout=PATIENCE).released

    def list(self):
        return list(self.stub.List(pb.ListRequest(warm=True), timeout=PATIENCE).sandboxes)

    def tree(self):
        """Pids of the fleet and of all below it."""
        return descendants(self.process.pid)

    def host(self):
        """The pid of the executor host."""
        return next(pid for pid in children(self.process.pid) if b"sandfleet_executor" in command_line(pid))

    def let_go(self):
        """What the end of the owner is to the fleet."""
        if self.lifeline is not None:
            os.close(self.lifeline)
            self.lifeline = None

    def wait(self):
        return self.process.wait(PATIENCE)

    def close(self):
        self.channel.close()
        self.let_go()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stderr.close()


@contextlib.contextmanager
def a_fleet(state_dir, *arguments, **how):
    fleet = FleetProcess(state_dir, *arguments, **how)
    try:
        assert fleet.said == "ready", fleet.said
        yield fleet
    finally:
        fleet.close()


def run(access, code, execution_id=None):
    """Runs a cell in the default context: its outcome and what it printed."""
    with grpc.insecure_channel(access.address) as channel:
        request = interpreter_pb2.ExecuteRequest(execution_id=execution_id or f"e{time.monotonic_ns()}", code=code)
        events = [
            event
            for said in InterpreterServiceStub(channel).Execute(request, metadata=bearer(access), timeout=PATIENCE)
            for event in said.events
        ]
    printed = b"".join(event.output.data for event in events if event.HasField("output"))
    return events[-1].finished.outcome, printed.decode()


def describe(access, token=None):
    with grpc.insecure_channel(access.address) as channel:
        return SessionServiceStub(channel).Describe(
            session_pb2.DescribeRequest(), metadata=bearer(access, token), timeout=PATIENCE
        )


def bearer(access, token=None):
    return (("authorization", f"Bearer {token or access.token}"),)


def children(pid):
    """Those of all its threads."""
    found = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (thread / "children").read_text().split()]
    return found


def descendants(pid):
    return [pid, *(one for child in children(pid) for one in descendants(child))]


def command_line(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def is_running(pid):
    """Not gone, and no zombie that waits for its parent."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def eventually(condition, what):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"not within {PATIENCE} s: {what}"
        time.sleep(0.05)
