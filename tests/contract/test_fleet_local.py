"""The fleet service over real executors on this machine."""

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from sandfleet_api.executor.v1 import common_pb2, session_pb2
from sandfleet_api.fleet.v1 import fleet_pb2 as pb
from support.fleet.process import PATIENCE, FleetProcess, a_fleet, describe, eventually, is_running, run

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
OK = common_pb2.OUTCOME_OK
ROOT = os.geteuid() == 0


@pytest.fixture
def base():
    # Short: the path of a Unix socket has 107 bytes.
    with tempfile.TemporaryDirectory(prefix="sf-") as path:
        yield Path(path)


@pytest.fixture(scope="module")
def fleet():
    with tempfile.TemporaryDirectory(prefix="sf-") as path, a_fleet(f"{path}/f-shared") as made:
        yield made


@pytest.fixture
def name(request):
    """A request id of the test's own."""
    return request.node.name[:60].replace("[", "-").replace("]", "")


def failure(call):
    with pytest.raises(grpc.RpcError) as caught:
        call()
    said = common_pb2.ErrorDetail.FromString(dict(caught.value.trailing_metadata())["sandfleet-error-bin"])
    return caught.value.code(), said.reason


# In /proc/net/unix, of a socket that listens.
ACCEPTS = "00010000"


def executor_of(fleet, bound):
    """The pid of the process that listens on the sandbox's socket."""
    socket_path = bound.access.address.removeprefix("unix://")
    sockets = [
        line.split() for line in Path("/proc/net/unix").read_text().splitlines() if line.endswith(" " + socket_path)
    ]
    # What it has accepted has its name as well, and goes again.
    inode = next(columns[6] for columns in sockets if columns[3] == ACCEPTS)
    # Processes start and end while one looks: one look may miss what the next one sees.
    for _ in range(100):
        for pid in fleet.tree():
            if f"socket:[{inode}]" in open_files(pid):
                return pid
        time.sleep(0.1)
    raise AssertionError("no server listens on the socket")


def open_files(pid):
    found = []
    for link in Path(f"/proc/{pid}/fd").glob("*"):
        with contextlib.suppress(OSError):
            found.append(str(link.readlink()))
    return found


def test_a_claimed_sandbox_runs_code_and_a_released_one_leaves_nothing(fleet, name):
    bound = fleet.claim(name, envs={"GREETING": "hello"}, labels={"team": "blue"})
    assert run(bound.access, "import os; print(os.environ['GREETING'])") == (OK, "hello\n")
    assert describe(bound.access).session_id == bound.sandbox.sandbox_id
    assert (bound.egress, bound.sandbox.egress.reason) == (pb.EGRESS_STATE_DENIED, "NoNetwork")
    socket_path = Path(bound.access.address.removeprefix("unix://"))
    workspace = fleet.state_dir / "workspaces" / bound.sandbox.workspace_id
    executor = executor_of(fleet, bound)
    assert socket_path.exists()
    assert workspace.is_dir()
    assert fleet.release(bound.sandbox.sandbox_id)
    assert not is_running(executor)
    eventually(lambda: not socket_path.parent.exists() and not workspace.exists(), "the directories are removed")
    assert failure(lambda: fleet.access(bound.sandbox.sandbox_id)) == (grpc.StatusCode.NOT_FOUND, "SandboxNotFound")


def test_only_its_user_can_reach_a_fleet_and_its_sandboxes(fleet, name):
    bound = fleet.claim(name)
    for path in (fleet.state_dir, Path(bound.access.address.removeprefix("unix://")).parent):
        found = path.stat()
        assert (stat.S_IMODE(found.st_mode), found.st_uid) == (0o700, os.geteuid())
    fleet.release(bound.sandbox.sandbox_id)


@pytest.mark.skipif(not ROOT, reason="needs root to become another user")
def test_another_user_cannot_connect_and_could_if_the_directory_were_open(fleet):
    become_another_user = "import os, socket; os.setgroups([]); os.setgid(65534); os.setuid(65534)"
    script = f"{become_another_user}; socket.socket(socket.AF_UNIX).connect({str(fleet.state_dir / 'fleet.sock')!r})"

    def as_another_user():
        return subprocess.run([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True, check=False)

    assert "PermissionError" in as_another_user().stderr
    socket_path, parents = fleet.state_dir / "fleet.sock", [fleet.state_dir, fleet.state_dir.parent]
    try:
        for path in [*parents, socket_path]:
            path.chmod(0o777)
        assert as_another_user().returncode == 0
    finally:
        for path in parents:
            path.chmod(0o700)


def test_a_token_opens_its_own_sandbox_and_no_other(fleet, name):
    one, other = fleet.claim(f"{name}-1"), fleet.claim(f"{name}-2")
    assert describe(one.access).sandbox_uid == one.sandbox.sandbox_uid
    with pytest.raises(grpc.RpcError) as caught:
        describe(one.access, token=other.access.token)
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    for bound in (one, other):
        fleet.release(bound.sandbox.sandbox_id)


@pytest.mark.skipif(not ROOT, reason="needs root")
def test_each_sandbox_has_a_user_of_its_own(fleet, name):
    bound = [fleet.claim(f"{name}-{number}") for number in range(2)]
    owners = {(fleet.state_dir / "workspaces" / one.sandbox.workspace_id).stat().st_uid for one in bound}
    assert len(owners) == 2
    assert min(owners) >= 20_000
    for one in bound:
        fleet.release(one.sandbox.sandbox_id)


def test_a_claim_asked_twice_gives_one_sandbox_and_after_its_end_a_typed_error(fleet, name):
    first, second = fleet.claim(name), fleet.claim(name)
    assert first.sandbox == second.sandbox
    assert run(second.access, "1")[0] == OK
    fleet.release(first.sandbox.sandbox_id)
    assert failure(lambda: fleet.claim(name)) == (grpc.StatusCode.FAILED_PRECONDITION, "ClaimEnded")


def test_a_killed_executor_is_replaced_on_the_same_workspace(fleet, name):
    bound = fleet.claim(name)
    assert run(bound.access, "open('notes.txt', 'w').write('still here')")[0] == OK
    os.kill(executor_of(fleet, bound), signal.SIGKILL)
    answer = fleet.access(bound.sandbox.sandbox_id)
    assert (answer.sandbox.restarts, answer.sandbox.last_restart_reason) == (1, "Killed")
    assert answer.sandbox.sandbox_uid != bound.sandbox.sandbox_uid
    assert run(answer.access, "print(open('notes.txt').read())") == (OK, "still here\n")
    fleet.release(bound.sandbox.sandbox_id)


def test_a_killed_host_costs_no_session(base):
    with a_fleet(base / "f-1") as fleet:
        bound = [fleet.claim(f"r{number}") for number in range(2)]
        for one in bound:
            assert run(one.access, f"open('mine', 'w').write({one.sandbox.sandbox_id!r})")[0] == OK
        before = [pid for pid in fleet.tree() if pid != fleet.process.pid]
        os.kill(fleet.host(), signal.SIGKILL)
        for one in bound:
            assert read_again(fleet, one.sandbox.sandbox_id) == (OK, one.sandbox.sandbox_id + "\n")
        eventually(lambda: not any(map(is_running, before)), "the old host's processes are gone")


def read_again(fleet, sandbox_id):
    """As clients do it: until the fleet has noticed, it gives out the way to the executor that was."""
    for _ in range(100):
        try:
            return run(fleet.access(sandbox_id).access, "print(open('mine').read())")
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
            time.sleep(0.1)
    raise AssertionError("the executor does not come back")


def test_a_lease_ends_a_session_and_renewing_extends_it(fleet, name):
    bound = fleet.claim(name, lease=Duration(seconds=2))
    renewed = fleet.stub.Renew(
        pb.RenewRequest(sandbox_id=bound.sandbox.sandbox_id, lease=Duration(seconds=4)), timeout=PATIENCE
    )
    assert renewed.sandbox.lease_expires.ToNanoseconds() > bound.sandbox.lease_expires.ToNanoseconds()
    assert describe(renewed.access).lease_remaining.ToTimedelta().total_seconds() > 2
    eventually(lambda: bound.sandbox.sandbox_id not in {one.sandbox_id for one in fleet.list()}, "the lease is over")
    with pytest.raises(grpc.RpcError, match="LeaseExpired"):
        fleet.access(bound.sandbox.sandbox_id)


def test_an_idle_session_ends(fleet, name):
    bound = fleet.claim(name, idle_timeout=Duration(seconds=1))
    eventually(lambda: bound.sandbox.sandbox_id not in {one.sandbox_id for one in fleet.list()}, "the session is idle")
    with pytest.raises(grpc.RpcError, match="it ended: Idle"):
        fleet.access(bound.sandbox.sandbox_id)


def test_a_kept_workspace_is_claimed_again_by_one_session_at_a_time(fleet, name):
    first = fleet.claim(f"{name}-1", keep_workspace=True)
    workspace = first.sandbox.workspace_id
    assert run(first.access, "open('notes.txt', 'w').write('kept')")[0] == OK
    fleet.release(first.sandbox.sandbox_id)
    second = fleet.claim(f"{name}-2", workspace_id=workspace)
    assert not second.warm
    assert run(second.access, "print(open('notes.txt').read())") == (OK, "kept\n")
    busy = (grpc.StatusCode.FAILED_PRECONDITION, "WorkspaceBusy")
    assert failure(lambda: fleet.claim(f"{name}-3", workspace_id=workspace)) == busy
    fleet.release(second.sandbox.sandbox_id)
    gone = (grpc.StatusCode.NOT_FOUND, "WorkspaceNotFound")
    assert failure(lambda: fleet.claim(f"{name}-4", workspace_id=workspace)) == gone


def test_isolation_that_is_not_to_be_had_is_refused_and_none_has_to_be_asked_for_twice(base, fleet, name):
    unavailable = (grpc.StatusCode.FAILED_PRECONDITION, "IsolationUnavailable")
    assert failure(lambda: fleet.claim(name, min_isolation=session_pb2.ISOLATION_GVISOR)) == unavailable
    with a_fleet(base / "f-1", "--isolation", "none", "--pool-size", "1") as loose:
        assert failure(loose.claim) == unavailable
        bound = loose.claim("r2", min_isolation=session_pb2.ISOLATION_NONE)
        assert bound.sandbox.isolation == describe(bound.access).isolation == session_pb2.ISOLATION_NONE


@pytest.mark.parametrize(
    ("asked", "refused"),
    [
        ({"pool": "fast"}, (grpc.StatusCode.NOT_FOUND, "PoolNotFound")),
        ({"pool": "python", "template": "other"}, (grpc.StatusCode.NOT_FOUND, "PoolNotFound")),
        ({"template": "other"}, (grpc.StatusCode.NOT_FOUND, "TemplateNotFound")),
        ({"namespace": "team"}, (grpc.StatusCode.INVALID_ARGUMENT, "NoCluster")),
        ({"name": "one"}, (grpc.StatusCode.INVALID_ARGUMENT, "NoCluster")),
        ({"contract": "free"}, (grpc.StatusCode.FAILED_PRECONDITION, "ContractNotSupported")),
    ],
)
def test_what_only_a_cluster_has_is_refused_and_never_left_out_of_account(fleet, name, asked, refused):
    assert failure(lambda: fleet.claim(name, **asked)) == refused


@pytest.mark.smoke
def test_no_namespace_is_listed_where_there_is_none(fleet):
    refused = (grpc.StatusCode.INVALID_ARGUMENT, "NoCluster")
    assert failure(lambda: fleet.stub.List(pb.ListRequest(namespace="team"))) == refused
    assert failure(lambda: fleet.stub.ListPools(pb.ListPoolsRequest(namespace="team"))) == refused


def test_a_pool_is_called_as_its_template(fleet, name):
    bound = fleet.claim(name, pool="python", contract="autonomous")
    assert bound.sandbox.template == "python"
    fleet.release(bound.sandbox.sandbox_id)


def test_a_caller_that_goes_away_leaves_no_sandbox_behind(base):
    with a_fleet(base / "f-1", "--pool-size", "0") as fleet:
        call = fleet.stub.Claim(pb.ClaimRequest(request_id="r1"), timeout=PATIENCE)
        assert next(call).queued.position == 1
        call.cancel()
        eventually(lambda: fleet.list() == [], "the start is undone")
        eventually(lambda: list((fleet.state_dir / "workspaces").iterdir()) == [], "so is its workspace")


def test_the_end_of_the_owner_is_the_end_of_everything(base):
    with a_fleet(base / "f-1") as fleet:
        bound = fleet.claim()
        assert (
            run(bound.access, "import subprocess; subprocess.Popen(['sleep', '1000'], start_new_session=True)")[0] == OK
        )
        processes = fleet.tree()
        assert len(processes) > 4
        fleet.let_go()
        assert fleet.wait() == 0
        eventually(lambda: not any(map(is_running, processes)), "no process is left")
        assert list(base.iterdir()) == []
        assert fleet.process.stderr.read() == b""


def test_a_terminated_fleet_ends_everything_too(base):
    with a_fleet(base / "f-1") as fleet:
        processes = fleet.tree()
        fleet.process.send_signal(signal.SIGTERM)
        assert fleet.wait() == 0
        eventually(lambda: not any(map(is_running, processes)), "no process is left")
        assert list(base.iterdir()) == []


def test_a_killed_fleet_leaves_no_process_and_the_next_one_sweeps_its_directory(base):
    with a_fleet(base / "f-1") as fleet:
        bound = fleet.claim()
        assert run(bound.access, "1")[0] == OK
        processes = fleet.tree()
        fleet.process.kill()
        fleet.wait()
        eventually(lambda: not any(map(is_running, processes)), "no process is left")
        assert (base / "f-1").is_dir()
        with a_fleet(base / "f-2"):
            assert [path.name for path in base.iterdir()] == ["f-2"]


def test_two_owners_at_once_do_not_disturb_each_other(base):
    with a_fleet(base / "f-1") as one, a_fleet(base / "f-2") as other:
        mine, theirs = one.claim(), other.claim()
        assert mine.sandbox.sandbox_id != theirs.sandbox.sandbox_id
        if ROOT:
            users = [
                next((fleet.state_dir / "workspaces").glob(bound.sandbox.workspace_id)).stat().st_uid
                for fleet, bound in ((one, mine), (other, theirs))
            ]
            assert users[0] // 4096 != users[1] // 4096
        one.let_go()
        assert one.wait() == 0
        assert run(theirs.access, "print(6 * 7)") == (OK, "42\n")


@pytest.mark.parametrize(
    ("state_dir", "why"),
    [("/proc/f-1", "cannot make the state directory"), ("x" * 100 + "/f-1", "107 are possible")],
)
def test_what_cannot_be_served_is_said_in_one_line(base, state_dir, why):
    fleet = FleetProcess(base / state_dir)
    try:
        assert fleet.said.startswith("failed: cannot ")
        assert why in fleet.said
        assert fleet.wait() == 1
        assert b"Traceback" not in fleet.process.stderr.read()
    finally:
        fleet.close()
