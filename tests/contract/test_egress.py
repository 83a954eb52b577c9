"""Egress by name through a real fleet: pip, git, curl and what else a program in a session uses, to real servers."""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from sandfleet import AsyncFleet, AsyncSandbox, Egress, EgressState, Header
from sandfleet._fleets.embedded import Options, Process
from sandfleet.cli import main
from sandfleet.errors import InvalidArgument, PreconditionFailed
from support.client.executors import children
from support.client.internet import index, repository, serving
from support.client.served import served_fleet
from support.operator.egress_bed import certificate

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
HOSTS = "SANDFLEET_EGRESS_HOSTS"


@dataclass
class Internet:
    """`web` and `secure` serve the same folder at these names; `authority` signed the second's certificate."""

    web: str
    secure: str
    authority: str


@pytest.fixture(scope="module")
def internet() -> Iterator[Internet]:
    with tempfile.TemporaryDirectory() as folder:
        (served := Path(folder) / "www").mkdir()
        index(served, "outside")
        if shutil.which("git"):
            repository(served, "project")
        (served / "big").write_bytes(b"0" * (4 << 20))
        tls, _, authority = certificate(folder, "secure.test")
        # The fleet's processes trust the host as they trust any: by the machine's authorities.
        os.environ["SSL_CERT_FILE"] = str(authority)
        with serving(served) as port, serving(served, tls) as secure_port:
            yield Internet(f"web.test:{port}", f"secure.test:{secure_port}", authority.read_text())


@pytest.fixture(scope="module")
def served(internet: Internet) -> Iterator[Process]:
    os.environ[HOSTS] = "web.test=127.0.0.1,secure.test=127.0.0.1"
    try:
        with served_fleet(Options(pool_size=1)) as process:
            yield process
    finally:
        del os.environ[HOSTS], os.environ["SSL_CERT_FILE"]


@pytest.fixture
async def sandbox(fleet: AsyncFleet, internet: Internet) -> AsyncIterator[AsyncSandbox]:
    async with await AsyncSandbox.create(fleet=fleet, egress=[internet.web, internet.secure]) as made:
        await made.files.write("ca.pem", internet.authority)
        yield made


async def output(sandbox: AsyncSandbox, command: str) -> str:
    done = await sandbox.commands.run(command, timeout=100)
    return done.stdout + done.stderr


async def test_pip_installs_from_an_index_by_its_name(sandbox: AsyncSandbox, internet: Internet) -> None:
    said = await output(
        sandbox, f"pip install --trusted-host web.test -i http://{internet.web}/simple outside 2>&1; echo $?"
    )
    assert said.endswith("0\n"), said
    execution = await sandbox.run_code("import outside; outside.VALUE")
    assert execution.text == "'out there'"


async def test_pip_installs_over_tls(sandbox: AsyncSandbox, internet: Internet) -> None:
    said = await output(sandbox, f"pip install --cert ca.pem -i https://{internet.secure}/simple outside 2>&1; echo $?")
    assert said.endswith("0\n"), said


async def test_pip_reads_why_it_may_not_reach_an_index(sandbox: AsyncSandbox) -> None:
    said = await output(sandbox, "pip install --retries 1 -i https://other.test/simple outside 2>&1")
    assert "this session may not reach other.test:443: not in its egress list" in said


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
async def test_git_clones_over_http_and_https(sandbox: AsyncSandbox, internet: Internet) -> None:
    web = await output(sandbox, f"git clone -q http://{internet.web}/project.git a && cat a/README")
    secure = await output(
        sandbox, f"GIT_SSL_CAINFO=ca.pem git clone -q https://{internet.secure}/project.git b && cat b/README"
    )
    assert (web, secure) == ("cloned\n", "cloned\n")


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_curl_posts_downloads_and_uses_socks(sandbox: AsyncSandbox, internet: Internet) -> None:
    posted = await output(sandbox, f"curl -sS -d body http://{internet.web}/x")
    assert posted == f"{internet.web} - body"
    size = await output(sandbox, f"curl -sS --cacert ca.pem https://{internet.secure}/big | wc -c")
    assert int(size) == 4 << 20
    by_socks = await output(sandbox, f"curl -sS -x socks5h://127.0.0.1:3128 -d body http://{internet.web}/x")
    assert by_socks == posted


async def test_code_reaches_what_is_allowed_and_reads_why_it_does_not_reach_the_rest(
    sandbox: AsyncSandbox, internet: Internet
) -> None:
    fetch = f"""
import urllib.request, urllib.error
def fetch(url):
    try:
        return urllib.request.urlopen(url, timeout=20).read().decode()
    except urllib.error.HTTPError as error:
        return f"{{error.code}} {{error.read().decode()}}"
print(fetch("http://{internet.web}/project.git/HEAD")[:4], fetch("http://other.test/"))
"""
    execution = await sandbox.run_code(fetch)
    assert "403 this session may not reach other.test:80: not in its egress list" in execution.logs.stdout


@pytest.mark.smoke
async def test_the_status_and_the_report_say_what_is_reached(sandbox: AsyncSandbox, internet: Internet) -> None:
    info = await sandbox.get_info()
    assert (info.egress.state, info.egress.reason) == (EgressState.OPEN, "ByName")
    assert internet.web in info.egress.message
    assert sandbox.bound is not None
    assert sandbox.bound.egress is EgressState.OPEN
    assert await sandbox.wait_for_egress()
    await output(sandbox, f"curl -sS http://{internet.web}/x http://other.test/y")
    report = await sandbox.get_egress()
    while len(report.hosts) < 2:
        report = await sandbox.get_egress()
    assert report.names == (internet.web, internet.secure)
    [reached], [refused] = report.reached, report.refused
    assert (f"{reached.host}:{reached.port}", reached.address, reached.connections) == (internet.web, "127.0.0.1", 1)
    assert (refused.host, refused.port, refused.reason) == ("other.test", 80, "NotListed")


async def test_an_execution_tells_which_hosts_were_refused_while_it_ran(
    sandbox: AsyncSandbox, internet: Internet
) -> None:
    code = """
import urllib.request, urllib.error
for url in {urls}:
    try:
        urllib.request.urlopen(url, timeout=20).read()
    except urllib.error.HTTPError:
        pass
"""
    urls = [f"http://{internet.web}/big", "http://b.test/", "http://b.test/x", "http://c.test:81/", "http://127.0.0.2/"]
    execution = await sandbox.run_code(code.format(urls=urls))
    assert execution.denied_hosts == ("b.test", "c.test:81", "127.0.0.2"), execution
    # Of a host that is allowed and does not answer there is nothing to learn.
    assert (await sandbox.run_code(code.format(urls=urls[:1]))).denied_hosts == ()
    done = await sandbox.commands.run("curl -s http://d.test/; curl -s https://e.test/")
    assert done.denied_hosts == ("d.test", "e.test")
    many = [f"http://h{number}.test/" for number in range(20)]
    assert len((await sandbox.run_code(code.format(urls=many))).denied_hosts) == 16


async def test_executions_at_a_time_tell_all_refusals_of_the_session(sandbox: AsyncSandbox) -> None:
    waiting = "import time, os\nopen('begun', 'w').close()\nwhile not os.path.exists('go'): time.sleep(0.01)"
    one = asyncio.create_task(sandbox.run_code(waiting))
    done = await sandbox.commands.run(
        "until [ -e begun ]; do sleep 0.05; done; curl -s http://b.test/; touch go", timeout=60
    )
    assert done.denied_hosts == ("b.test",)
    assert (await one).denied_hosts == ("b.test",)


async def test_a_list_changes_while_the_session_runs(sandbox: AsyncSandbox, internet: Internet) -> None:
    async def status() -> str:
        return await output(sandbox, f"curl -s -o /dev/null -w '%{{http_code}}' -d x http://{internet.web}/x")

    assert await status() == "200"
    await sandbox.set_egress([internet.secure])
    assert await status() == "403"
    await sandbox.set_egress(Egress((internet.web,)))
    assert await status() == "200"
    with pytest.raises(InvalidArgument, match="10\\.0\\.0\\.1"):
        await sandbox.set_egress(["10.0.0.1"])


async def test_a_session_without_a_list_has_no_way_out(fleet: AsyncFleet, internet: Internet) -> None:
    async with await AsyncSandbox.create(fleet=fleet) as sandbox:
        said = await output(sandbox, "env | grep -ci proxy; curl -s http://127.0.0.1:3128/; echo $?")
        assert said == "0\n7\n"
        assert (await sandbox.get_info()).egress.reason == "NoNetwork"
        with pytest.raises(PreconditionFailed) as caught:
            await sandbox.set_egress([internet.web])
        assert caught.value.reason == "NoEgress"


@pytest.mark.parametrize("names", [["https://example.org"], ["127.0.0.1"], ["*.com"], ["a.example"] * 101])
async def test_a_claim_with_what_is_no_name_is_refused(fleet: AsyncFleet, names: list[str]) -> None:
    with pytest.raises(InvalidArgument) as caught:
        await AsyncSandbox.create(fleet=fleet, egress=names)
    assert caught.value.reason == "InvalidEgress"


async def test_a_brokered_session_has_tools_instead(fleet: AsyncFleet, internet: Internet) -> None:
    with pytest.raises(InvalidArgument, match="contract brokered allows none"):
        await AsyncSandbox.create(fleet=fleet, contract="brokered", egress=[internet.web])


SECRET = "canary-of-the-credential"


async def test_a_credential_is_put_in_outside_and_never_enters_the_session(
    fleet: AsyncFleet, served: Process, internet: Internet
) -> None:
    credentials = {"secure.test": Header("Authorization", "Bearer {key}", key=SECRET, env="EXAMPLE_TOKEN")}
    async with await AsyncSandbox.create(fleet=fleet, egress=[internet.secure], credentials=credentials) as sandbox:
        url = f"https://{internet.secure}/x"
        # The host echoes the header: it had the secret, and the session has it covered.
        assert f"{internet.secure} Bearer {'*' * len(SECRET)} body" in await output(sandbox, f"curl -sS -d body {url}")
        basic = await output(sandbox, f'curl -sS -u "me:$EXAMPLE_TOKEN" -d body {url}')
        assert " Basic ****" in basic
        fetch = f"import urllib.request as u; print(u.urlopen({url!r}, b'body').read().decode())"
        assert "Bearer ****" in (await sandbox.run_code(fetch)).logs.stdout
        assert SECRET not in await output(sandbox, "env; cat /tmp/.sandfleet-authorities.pem; cat /proc/*/environ")
        assert "sandfleet-credential-" in await output(sandbox, "echo $EXAMPLE_TOKEN")
        assert SECRET not in repr(await sandbox.get_info())
        for file in served.state_dir.rglob("*"):
            assert not file.is_file() or SECRET.encode() not in file.read_bytes()
        for pid in (served.pid, *children(served.pid)):
            assert SECRET.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
            assert SECRET.encode() not in Path(f"/proc/{pid}/environ").read_bytes()


async def test_only_the_requests_that_the_list_names_reach_a_host(fleet: AsyncFleet, internet: Internet) -> None:
    host, port = internet.secure.split(":")
    wish = Egress.host(host, ports=[int(port)], methods=["GET", "POST"], paths=["/simple/*", "/x"])
    async with await AsyncSandbox.create(fleet=fleet, egress=wish) as sandbox:
        url = f"https://{internet.secure}"
        said = await output(sandbox, f"pip install -i {url}/simple outside 2>&1; echo $?")
        assert said.endswith("0\n"), said
        codes = f"curl -sS --path-as-is -o /dev/null -w '%{{http_code}} ' {url}"
        # Files of the index are beside its pages.
        asked = ("/simple/outside/", "/big", "/simple/../big", "/simple/%2e%2e/big", "/simple/ -X DELETE")
        assert await output(sandbox, "; ".join(codes + each for each in asked)) == "200 403 403 403 403 "
        assert "its egress list does not allow this request: GET /big" in await output(sandbox, f"curl -sS {url}/big")
        await sandbox.set_egress([f"{internet.secure}/big"])
        assert await output(sandbox, f"{codes}/big; {codes}/simple/") == "200 403 "


async def test_a_session_that_trusts_no_other_certificate_gets_no_methods(
    sandbox: AsyncSandbox, internet: Internet
) -> None:
    with pytest.raises(PreconditionFailed, match="trust no other certificate"):
        await sandbox.set_egress([f"GET {internet.secure}"])


async def test_a_credential_for_a_host_outside_the_list_is_refused(fleet: AsyncFleet, internet: Internet) -> None:
    credentials = {"other.test": Header("Authorization", key=SECRET)}
    with pytest.raises(InvalidArgument) as caught:
        await AsyncSandbox.create(fleet=fleet, egress=[internet.secure], credentials=credentials)
    assert SECRET not in str(caught.value)


async def test_a_cell_installs_a_package_by_name(sandbox: AsyncSandbox, internet: Internet) -> None:
    installed = await sandbox.run_code(f"%pip install -q --cert ca.pem -i https://{internet.secure}/simple outside")
    assert installed.ok, installed
    assert (await sandbox.run_code("import outside; outside.VALUE")).text == "'out there'"
    refused = await sandbox.run_code("%pip install -q --retries 0 -i https://other.test/simple inside")
    assert not refused.ok
    assert refused.denied_hosts == ("other.test",)


def egress_process(served: Process) -> int:
    return next(pid for pid in children(served.pid) if b"fleet.egress" in Path(f"/proc/{pid}/cmdline").read_bytes())


async def test_after_a_kill_of_the_egress_process_the_next_connection_works(
    sandbox: AsyncSandbox, served: Process, internet: Internet
) -> None:
    # A connection that is open meanwhile: its answer has no end.
    reading = asyncio.create_task(output(sandbox, f"curl -sN 'http://{internet.web}/endless'; echo $?"))
    while not (await sandbox.get_egress()).reached:
        await asyncio.sleep(0.05)
    os.kill(killed := egress_process(served), signal.SIGKILL)
    # curl's words for an answer that breaks off: 18, or 56 where its connection was reset.
    assert (await reading).strip().endswith(("18", "56"))
    assert (
        await output(sandbox, f"curl -sS --retry 3 --retry-all-errors -d again http://{internet.web}/x")
        == f"{internet.web} - again"
    )
    assert egress_process(served) != killed


@pytest.mark.smoke
async def test_the_session_goes_on_with_its_list_after_a_restart_and_a_suspension(
    sandbox: AsyncSandbox, fleet: AsyncFleet, internet: Internet
) -> None:
    await sandbox.set_egress([internet.web])
    await sandbox.suspend()
    async with await AsyncSandbox.resume(sandbox.sandbox_id, fleet=fleet) as resumed:
        assert await output(resumed, f"curl -sS -d x http://{internet.web}/x") == f"{internet.web} - x"
        assert (await resumed.get_egress()).names == (internet.web,)


async def test_the_command_line_shows_and_changes_it(
    sandbox: AsyncSandbox, served: Process, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SANDFLEET_ADDRESS", served.address)
    await output(sandbox, "curl -s http://other.test:81/")
    while not (await sandbox.get_egress()).hosts:
        pass
    assert await asyncio.to_thread(main, ["egress", sandbox.sandbox_id]) == 0
    shown = capsys.readouterr().out
    assert "other.test:81" in shown
    assert "refused (NotListed)" in shown
    assert "to allow what was refused: --allow other.test:81" in shown

    def leave(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sandfleet.cli.fleets.egress.time.sleep", leave)
    assert await asyncio.to_thread(main, ["egress", sandbox.sandbox_id, "-w"]) == 0
    assert "refused (NotListed)" in capsys.readouterr().out
    assert await asyncio.to_thread(main, ["egress", sandbox.sandbox_id, "--allow", "other.test:81"]) == 0
    assert "other.test:81" in (await sandbox.get_egress()).names
