"""Arguments of a wrong type or with an unknown word: refused in words, before anything is sent."""

from collections.abc import Mapping

import pytest
from sandfleet import AsyncSandbox, Limits, Sandbox, ServiceSpec
from sandfleet._arguments import checked
from sandfleet._fleets.fleet import AsyncFleet
from sandfleet.errors import InvalidArgument
from sandfleet.testing import FakeFleet
from sandfleet.values.services import tcp

SURROGATE = "a\ud800b"

CREATE = [
    ({"isolation": "gVisor"}, "isolation has to be 'none', 'namespace' or 'gvisor', not 'gVisor'"),
    ({"isolation": "unknown"}, "isolation has to be 'none', 'namespace' or 'gvisor', not 'unknown'"),
    ({"contract": "free"}, "contract has to be '', 'autonomous', 'brokered' or 'reviewed', not 'free'"),
    ({"egress": "all"}, "egress has to be an Egress, a list of text, 'none' or 'template', not 'all'"),
    ({"timeout": "5"}, "timeout has to be a number, not str"),
    ({"timeout": float("nan")}, "timeout is no length of time: nan"),
    ({"timeout": True}, "timeout has to be a number, not bool"),
    ({"max_wait": -1}, "max_wait is no length of time: -1"),
    ({"envs": {"A": 1}}, "envs['A'] has to be text, not int"),
    ({"envs": {1: "A"}}, "envs: each name in it has to be text, not int"),
    ({"envs": ["A=1"]}, "envs has to be a mapping of text to text, not list"),
    ({"mounts": "/app"}, "mounts has to be a mapping of text to text or a list of text, not str"),
    ({"mounts": ["/app", 3]}, "mounts[1] has to be text, not int"),
    ({"mounts": {"/app": None}}, "mounts['/app'] has to be text, not None"),
    ({"mounts": {SURROGATE: ""}}, "mounts: each name in it holds what is no character"),
    ({"labels": {"a": SURROGATE}}, "labels['a'] holds what is no character (a lone surrogate at 1)"),
    ({"limits": 1}, "limits has to be a Limits or a mapping of text to text, not int"),
    ({"limits": Limits(memory_bytes="1G")}, "limits.memory_bytes has to be a whole number, not str"),
    ({"keep_alive": "yes"}, "keep_alive has to be True or False, not"),
    ({"autosave": 1}, "autosave has to be True, False or an Autosave, not int"),
    ({"on_queued": "print"}, "on_queued has to be a function, not str"),
    ({"fleet": "unix:/x"}, "fleet has to be a Fleet, not str"),
    ({"template": None}, "template has to be text, not None"),
]
CALLS = [
    (lambda s: s.run_code(None), "code has to be text, not None"),
    (lambda s: s.run_code(b"1"), "code has to be text, not bytes"),
    (lambda s: s.run_code(SURROGATE), "code holds what is no character (a lone surrogate at 1)"),
    (lambda s: s.run_code("1", timeout="5"), "timeout has to be a number, not str"),
    (lambda s: s.run_code("1", on_failure="bla"), "on_failure has to be 'keep' or 'rollback', not 'bla'"),
    (lambda s: s.run_code("1", envs={"A": 1}), "envs['A'] has to be text, not int"),
    (lambda s: s.run_code("1", context=3), "context has to be text or a Context, not int"),
    (lambda s: s.run_code("1", on_stdout="x"), "on_stdout has to be a function, not str"),
    (
        lambda s: s.run_code("1", output_limit=2**70),
        "output_limit has to be a whole number, not 1180591620717411303424",
    ),
    (lambda s: s.commands.run(3), "cmd has to be text or a list of text or bytes, not int"),
    (lambda s: s.commands.run(["ls", 3]), "cmd[1] has to be text or bytes, not int"),
    (lambda s: s.commands.run("ls", stdin=3), "stdin has to be bytes, text, True or False, not int"),
    (lambda s: s.commands.run("ls", cwd=SURROGATE), "cwd holds what is no character (a lone surrogate at 1)"),
    (lambda s: s.files.write("a", 3), "data has to be text, bytes"),
    (lambda s: s.files.read("a", format="json"), "format has to be 'text', 'bytes' or 'stream', not 'json'"),
    (lambda s: s.files.read(3), "path has to be text, bytes or a path, not int"),
    (
        lambda s: s.files.read(SURROGATE),
        "path holds what is no character (a lone surrogate at 1): it is neither text nor the name of a file",
    ),
    (lambda s: s.files.list("a", depth="1"), "depth has to be a whole number, not str"),
    (lambda s: s.forward("8000"), "port has to be a whole number, not str"),
    (lambda s: s.get_host(8000.5), "port has to be a whole number, not 8000.5"),
    (lambda s: s.create_context(1), "context_id has to be text, not int"),
    (lambda s: s.fork_context(count="2"), "count has to be a whole number, not str"),
    (lambda s: s.pty.create(rows="24"), "rows has to be a whole number, not str"),
    (lambda s: s.states.save(3), "name has to be text, not int"),
    (lambda s: s.services.start("web", "x", restart="no"), "restart has to be 'always', 'on-failure' or 'never', not"),
    (lambda s: s.services.start("web", "x", ready=80), "ready has to be a Probe, not int"),
    (lambda s: s.services.stop("web", 3), "each of them has to be text, not int"),
    (lambda s: s.services.apply(["web"]), "ServiceSpec has to be a ServiceSpec, not str"),
    (
        lambda s: s.services.apply([ServiceSpec(name="a", cmd="x", ready=tcp("80"))]),
        "ServiceSpec.ready.port has to be a whole number, not str",
    ),
    (lambda s: s.set_timeout("5"), "timeout has to be a number, not str"),
]


@pytest.fixture
async def fake():
    async with FakeFleet() as made:
        yield made


@pytest.mark.parametrize(("options", "says"), CREATE, ids=lambda case: str(case)[:50])
async def test_create_refuses(fake: FakeFleet, options: dict, says: str) -> None:
    async with await AsyncFleet.connect(fake.address) as fleet:
        with pytest.raises(InvalidArgument) as refused:
            await AsyncSandbox.create(**{"fleet": fleet} | options)
    assert refused.value.message.startswith(f"cannot call create(): {says}")
    assert refused.value.subject in options
    assert not fake.called("Claim")


@pytest.mark.parametrize(("call", "says"), CALLS, ids=[says[:50] for _, says in CALLS])
async def test_a_call_refuses(fake: FakeFleet, call, says: str) -> None:
    async with await AsyncFleet.connect(fake.address) as fleet, await AsyncSandbox.create(fleet=fleet) as sandbox:
        before = len(fake.calls)
        with pytest.raises(InvalidArgument) as refused:
            await call(sandbox)
        assert len(fake.calls) == before
    assert f"(): {says}" in refused.value.message


async def test_a_name_of_elsewhere_says_what_it_is_called_here(fake: FakeFleet) -> None:
    for name, here in (("metadata", "labels"), ("workdir", "cwd"), ("on_timout", "on_timeout")):
        with pytest.raises(TypeError, match=f"'{name}': did you mean {here}"):
            await AsyncSandbox.create(**{name: {}})


def test_the_sync_client_refuses_the_same() -> None:
    with pytest.raises(InvalidArgument, match="fleet has to be a Fleet, not str"):
        Sandbox.create(fleet="x")
    with pytest.raises(InvalidArgument, match="on_queued has to be a function, not str"):
        Sandbox.create(on_queued="x")
    with pytest.raises(InvalidArgument, match="isolation has to be 'none', 'namespace' or 'gvisor', not 'gVisor'"):
        Sandbox.create(isolation="gVisor")


async def test_what_is_right_passes(fake: FakeFleet, tmp_path) -> None:
    async with (
        await AsyncFleet.connect(fake.address) as fleet,
        await AsyncSandbox.create(fleet=fleet, isolation="namespace", timeout=60, envs={"A": "1"}) as sandbox,
    ):
        assert (await sandbox.run_code("1", timeout=5, on_failure="rollback", context=None)).ok
        await sandbox.files.write(tmp_path.relative_to("/"), b"x")
        await sandbox.files.write("a\udcff", "x")
        assert (await sandbox.commands.run(["echo", b"\xff", "a\udcff"])).ok


def test_secrets_are_not_in_the_message() -> None:
    class Calls:
        @checked
        def call(self, token: dict, envs: Mapping[str, str]) -> None:
            """Take anything."""

    with pytest.raises(InvalidArgument) as refused:
        Calls().call("hunter2", {})
    assert "hunter2" not in refused.value.message
