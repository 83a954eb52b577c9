"""Programs that reach hosts by name from a sandbox of one machine: docs/howto/egress.md lists them."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cluster.harness.layout import cache
from sandfleet import AsyncFleet, AsyncSandbox, Header
from sandfleet._fleets.embedded import Options, Process
from support.client import chat
from support.client.internet import (
    crate,
    debian_package,
    go_module,
    index,
    maven_artifact,
    node_package,
    r_package,
    repository,
    serving,
    source,
)
from support.client.served import served_fleet
from support.operator.egress_bed import certificate

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
HOSTS, KEY = "SANDFLEET_EGRESS_HOSTS", "canary-of-the-programs"
GO = "/usr/local/go/bin"


def needs(program: str) -> pytest.MarkDecorator:
    """Sandboxes of this machine have what is below /usr, and what stands beside this environment's Python."""
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin:{GO}"
    return pytest.mark.skipif(shutil.which(program, path=path) is None, reason=f"{program} is not installed")


@dataclass
class Internet:
    """Two ports of one server, with TLS and without."""

    plain: str
    secure: str


def rust() -> Path | None:
    """The toolchain that has cargo and rustc: rustup keeps it in the user's folder, which sandboxes do not see."""
    cargo = shutil.which("cargo")
    done = cargo and subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=False)
    return Path(done.stdout.strip()) if done and done.returncode == 0 else None


@pytest.fixture(scope="module")
def internet() -> Iterator[Internet]:
    with tempfile.TemporaryDirectory() as folder:
        (www := Path(folder) / "www").mkdir()
        index(www, "outside")
        source(www, "inside")
        node_package(www, "aside")
        go_module(www, "example.test/lib")
        crate(www, "outside")
        maven_artifact(www, "example", "outside", "1.0")
        # Maven adds it to each extension.
        maven_artifact(www, "org.codehaus.plexus", "plexus-utils", "1.1")
        r_package(www, "outside")
        if shutil.which("dpkg-deb"):
            debian_package(www, "outside")
        if shutil.which("git"):
            repository(www, "project")
        tls, _, authority = certificate(folder, "host.test")
        # The egress process trusts it as any program of this machine trusts a host.
        os.environ["SSL_CERT_FILE"] = str(authority)
        with serving(www) as port, serving(www, tls, KEY) as secure:
            yield Internet(f"host.test:{port}", f"host.test:{secure}")
        del os.environ["SSL_CERT_FILE"]


@pytest.fixture(scope="module")
def served(internet: Internet) -> Iterator[Process]:
    os.environ[HOSTS] = "host.test=127.0.0.1"
    try:
        with served_fleet(Options(pool_size=1)) as process:
            yield process
    finally:
        del os.environ[HOSTS]


async def with_a_key(fleet: AsyncFleet, internet: Internet, env: str = "", **options: Any) -> AsyncSandbox:
    """A sandbox with a key for the host."""
    key = Header("Authorization", "Bearer {key}", key=KEY, env=env)
    hosts = [internet.plain, internet.secure]
    return await AsyncSandbox.create(fleet=fleet, egress=hosts, credentials={"host.test": key}, **options)


@pytest.fixture
async def sandbox(fleet: AsyncFleet, internet: Internet) -> AsyncIterator[AsyncSandbox]:
    """With a key for the host: its programs trust it by the session's own authority, without a word of theirs."""
    made = await with_a_key(fleet, internet, env="EXAMPLE_TOKEN")
    async with made:
        yield made


async def done(sandbox: AsyncSandbox, command: str) -> str:
    """What a command says that goes well."""
    execution = await sandbox.commands.run(command, timeout=200)
    assert execution.exit_code == 0, execution.stdout + execution.stderr
    return execution.stdout


async def test_pip_builds_what_it_has_fetched_as_a_source(sandbox: AsyncSandbox, internet: Internet) -> None:
    await done(sandbox, f"pip install -q -i https://{internet.secure}/simple outside inside")
    assert (await sandbox.run_code("import outside, inside; outside.VALUE, inside.VALUE")).text == (
        "('out there', 'built here')"
    )


@needs("npm")
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_npm_installs(sandbox: AsyncSandbox, internet: Internet, scheme: str) -> None:
    where = internet.plain if scheme == "http" else internet.secure
    await done(sandbox, f"npm install --no-audit --no-fund --registry {scheme}://{where}/npm/ aside")
    assert await done(sandbox, "node -p 'require(\"aside\")'") == "out there\n"


def uv() -> Path | None:
    """The folder of the newest uv in the cache, where scripts/uv.sh puts it."""
    return max((file.parent for file in cache().glob("uv-*/bin/uv")), key=lambda one: one.stat().st_mtime, default=None)


@pytest.mark.skipif(uv() is None, reason="uv is not in the cache: make setup brings it")
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_uv_installs_a_wheel_and_a_source(fleet: AsyncFleet, internet: Internet, scheme: str) -> None:
    made = with_a_key(fleet, internet, mounts={"/mnt/uv": str(uv())})
    where = internet.plain if scheme == "http" else internet.secure
    async with await made as sandbox:
        install = f"/mnt/uv/uv pip install -q -p /tmp/v -i {scheme}://{where}/simple outside inside"
        shown = "/tmp/v/bin/python -c 'import outside, inside; print(outside.VALUE, inside.VALUE)'"
        said = await done(sandbox, f"/mnt/uv/uv venv -q /tmp/v && {install} && {shown}")
        assert said == "out there built here\n"


@needs("go")
async def test_go_gets_a_module(sandbox: AsyncSandbox, internet: Internet) -> None:
    envs = f"PATH=$PATH:{GO} GOPROXY=https://{internet.secure}/go GONOSUMDB=* GOFLAGS=-mod=mod GOTOOLCHAIN=local"
    await done(sandbox, f"echo module m > go.mod && {envs} go get example.test/lib@v1.0.0")
    assert "example.test/lib v1.0.0" in await done(sandbox, "cat go.mod")


@needs("Rscript")
async def test_r_installs_a_package(sandbox: AsyncSandbox, internet: Internet) -> None:
    code = f"install.packages('outside', repos='https://{internet.secure}/cran', lib='.', quiet=TRUE)"
    assert await done(sandbox, f"Rscript -e \"{code}; library(outside, lib.loc='.'); cat(value())\"") == "out there"


@needs("apt-get")
async def test_apt_downloads_a_package(sandbox: AsyncSandbox, internet: Internet) -> None:
    # The machine's own lists are not to be seen here. apt trusts its own option alone.
    await done(sandbox, "mkdir -p apt/lists/partial apt/archives/partial && touch apt/status")
    options = "-o Dir::State=$PWD/apt -o Dir::State::status=$PWD/apt/status -o Dir::Cache=$PWD/apt -o Dir::Etc=$PWD/apt"
    options += " -o Acquire::https::CAInfo=$SSL_CERT_FILE -o APT::Sandbox::User="
    for url in (f"http://{internet.plain}", f"https://{internet.secure}"):
        await done(sandbox, f"rm -f *.deb; echo 'deb [trusted=yes] {url}/deb ./' > apt/sources.list")
        await done(sandbox, f"apt-get {options} update && apt-get {options} download outside && ls outside_1.0_all.deb")


JAVA = """
import java.net.*;
import java.net.http.*;
public class Get {
    public static void main(String[] urls) throws Exception {
        var client = HttpClient.newHttpClient();
        for (var url : urls) {
            var request = HttpRequest.newBuilder(URI.create(url)).build();
            System.out.print(client.send(request, HttpResponse.BodyHandlers.ofString()).statusCode() + " ");
            System.out.print(new URL(url).openStream().readAllBytes().length > 0 ? "read " : "empty ");
        }
    }
}
"""


@needs("javac")
async def test_java_downloads(sandbox: AsyncSandbox, internet: Internet) -> None:
    await sandbox.files.write("Get.java", JAVA)
    # Java reads no authorities from a file of PEM.
    store = "keytool -importcert -noprompt -storetype JKS -file own.pem -keystore own.jks -storepass changeit"
    await done(sandbox, f"sed -n '/BEGIN/h;//!H;$!d;x;p' $SSL_CERT_FILE > own.pem && {store} && javac Get.java")
    trusting = "-Djavax.net.ssl.trustStore=own.jks"
    said = await done(sandbox, f"java {trusting} Get http://{internet.plain}/simple/ https://{internet.secure}/simple/")
    assert said == "200 read 200 read "


POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>example</groupId><artifactId>inside</artifactId><version>1.0</version><packaging>pom</packaging>
<pluginRepositories><pluginRepository><id>outside</id><url>{url}/maven</url></pluginRepository></pluginRepositories>
<build><extensions><extension>
<groupId>example</groupId><artifactId>outside</artifactId><version>1.0</version>
</extension></extensions></build></project>"""


# Debian's, whose settings are in /etc, which sandboxes do not see.
MAVEN, CLASSES = Path("/usr/share/maven"), Path("/etc/maven/m2.conf")


@pytest.mark.skipif(not MAVEN.exists() or not CLASSES.exists(), reason="Debian's maven is not installed")
async def test_maven_downloads_a_jar(sandbox: AsyncSandbox, internet: Internet) -> None:
    """One that it loads itself, since a dependency is only looked for by a plugin, of which this machine has none."""
    store = "keytool -importcert -noprompt -storetype JKS -file own.pem -keystore own.jks -storepass changeit"
    await done(sandbox, f"sed -n '/BEGIN/h;//!H;$!d;x;p' $SSL_CERT_FILE > own.pem && {store}")
    await done(
        sandbox, f"mkdir -p m/bin m/conf/logging && ln -s {MAVEN}/boot {MAVEN}/lib m && cp {MAVEN}/bin/mvn m/bin"
    )
    await sandbox.files.write("m/bin/m2.conf", CLASSES.read_text())
    for url in (f"http://{internet.plain}", f"https://{internet.secure}"):
        await sandbox.files.write("pom.xml", POM.format(url=url))
        trusting = "-Djavax.net.ssl.trustStore=own.jks"
        await done(sandbox, f"rm -rf own && m/bin/mvn -q -B {trusting} -Dmaven.repo.local=own validate")
        assert "own/example/outside/1.0/outside-1.0.jar" in await done(sandbox, "find own -name '*.jar'")


@pytest.mark.skipif(rust() is None, reason="cargo or rustc is not installed")
async def test_cargo_builds_with_a_crate(fleet: AsyncFleet, internet: Internet) -> None:
    made = with_a_key(fleet, internet, mounts={"/mnt/rust": str(rust())})
    async with await made as sandbox:
        await sandbox.files.write("src/main.rs", 'fn main() { println!("{}", outside::value()); }')
        for url in (f"http://{internet.plain}", f"https://{internet.secure}"):
            manifest = '[package]\nname = "inside"\nversion = "1.0.0"\nedition = "2021"\n'
            dependency = '[dependencies]\noutside = { version = "1", registry = "outside" }\n'
            await sandbox.files.write("Cargo.toml", manifest + dependency)
            envs = f"PATH=/mnt/rust/bin:$PATH CARGO_HOME=$PWD/home CARGO_REGISTRIES_OUTSIDE_INDEX=sparse+{url}/cargo/"
            assert await done(sandbox, f"rm -rf home Cargo.lock target && {envs} cargo run -q") == "out there\n"


@needs("git")
async def test_git_clones_and_pushes_with_a_key_that_it_does_not_have(
    sandbox: AsyncSandbox, internet: Internet
) -> None:
    at = f"https://me:$EXAMPLE_TOKEN@{internet.secure}/git/project.git"
    await done(sandbox, f"git clone -q {at} here && cat here/README")
    name = "-c user.name=t -c user.email=t@example.com"
    await done(sandbox, f"cd here && echo more > MORE && git add . && git {name} commit -qm Second && git push -q")
    assert await done(sandbox, f"git clone -q {at} again && cat again/MORE") == "more\n"
    assert KEY not in await done(sandbox, "cat here/.git/config; env")


@needs("git")
async def test_git_without_a_key_is_asked_for_one(fleet: AsyncFleet, internet: Internet) -> None:
    """The control: a session without the credential has nothing to show."""
    async with await AsyncSandbox.create(fleet=fleet, egress=[internet.secure]) as sandbox:
        command = (
            f"GIT_SSL_NO_VERIFY=1 GIT_TERMINAL_PROMPT=0 git clone -q https://me:x@{internet.secure}/git/project.git"
        )
        execution = await sandbox.commands.run(command)
        assert (execution.exit_code, "Authentication failed" in execution.stderr) == (128, True)


@needs("wget")
async def test_wget_downloads(sandbox: AsyncSandbox, internet: Internet) -> None:
    assert "outside" in await done(sandbox, f"wget -qO- http://{internet.plain}/simple/")
    # wget is told the session's authorities as an option.
    trusting = "--ca-certificate=$SSL_CERT_FILE"
    assert "outside" in await done(sandbox, f"wget -qO- {trusting} https://{internet.secure}/simple/")


@needs("curl")
async def test_server_sent_events_come_one_by_one(sandbox: AsyncSandbox, internet: Internet) -> None:
    for url in (f"http://{internet.plain}", f"https://{internet.secure}"):
        said = await done(sandbox, f"curl -sSN '{url}/events?600'")
        assert said == "".join(f"data: {number}\n\n" for number in range(600))


@pytest.mark.parametrize("key", [KEY, "canary-of-another-key"], ids=["right", "wrong"])
async def test_an_api_in_openais_form_answers_a_session_whose_key_stays_outside(
    fleet: AsyncFleet, internet: Internet, key: str
) -> None:
    """As a whole, and as a stream that arrives word by word. It refuses another key, and the session learns neither."""
    header = Header("Authorization", "Bearer {key}", key=key, env="OPENAI_API_KEY")
    made = AsyncSandbox.create(fleet=fleet, egress=[internet.secure], credentials={"host.test": header})
    async with await made as sandbox:
        execution = await sandbox.run_code(f"BASE = 'https://{internet.secure}/v1'\n{chat.TALK}")
        assert execution.logs.stdout == (chat.ANSWERED if key == KEY else chat.refused(key)), execution.error
        placeholder = (await sandbox.run_code("os.environ['OPENAI_API_KEY']")).text or ""
        assert placeholder.startswith("'sandfleet-credential-")


# A client of WebSocket in a few lines: through the proxy by CONNECT, as they all do.
CLIENT = """
import base64, os, socket, ssl, struct
def talk(host, port, secure):
    sock = socket.create_connection(("127.0.0.1", 3128), 20)
    sock.sendall(f"CONNECT {host}:{port} HTTP/1.1\\r\\nHost: {host}:{port}\\r\\n\\r\\n".encode())
    said = sock.recv(4096)
    assert b" 200 " in said, said
    if secure:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        sock = context.wrap_socket(sock, server_hostname=host)
    key = base64.b64encode(os.urandom(16)).decode()
    sock.sendall((f"GET / HTTP/1.1\\r\\nHost: {host}:{port}\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n"
                  f"Sec-WebSocket-Key: {key}\\r\\nSec-WebSocket-Version: 13\\r\\n\\r\\n").encode())
    file = sock.makefile("rb")
    status = file.readline()
    if b" 101 " not in status:
        return status.decode()
    while file.readline() != b"\\r\\n":
        pass
    for number in range(50):
        text = f"message {number}".encode()
        mask = os.urandom(4)
        sock.sendall(b"\\x81" + bytes([128 | len(text)]) + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(text)))
        head = file.read(2)
        assert file.read(head[1]) == text
    sock.sendall(b"\\x88\\x80" + bytes(4))
    return "echoed"
"""


async def test_a_websocket_goes_through(fleet: AsyncFleet, sandbox: AsyncSandbox, internet: Internet) -> None:
    (host, _, port), (_, _, secure) = internet.plain.partition(":"), internet.secure.partition(":")
    # `sandbox` has a key for the host, which the proxy puts into the handshake.
    async with await AsyncSandbox.create(fleet=fleet, egress=[internet.secure]) as other:
        for one, at, tls in ((other, secure, True), (sandbox, secure, True), (sandbox, port, False)):
            execution = await one.run_code(f"{CLIENT}print(talk({host!r}, {at}, {tls}))")
            assert execution.logs.stdout == "echoed\n", execution.error


@pytest.mark.attack(
    "looks for a key, or for its authority's, wherever it can read", "neither is there", control="in it"
)
@pytest.mark.smoke
async def test_a_key_is_in_no_file_of_the_session_nor_of_the_fleet(
    sandbox: AsyncSandbox, served: Process, internet: Internet
) -> None:
    """Also after it was used, was saved with the session's variables, and sleeps in a snapshot."""
    await sandbox.run_code("import os; token = os.environ['EXAMPLE_TOKEN']")
    said = await done(sandbox, f'curl -sS -H "X-Key: $EXAMPLE_TOKEN" -d body https://{internet.secure}/x')
    # It did reach the host, which echoes it.
    assert f"Bearer {'*' * len(KEY)} body" in said
    await done(sandbox, "echo $EXAMPLE_TOKEN > kept")
    # The programs of this environment may be below /tmp. They are bound there, and are no files of the session.
    files = "find /tmp /workspace /run /dev/shm -xdev -type f -print0"
    looks = "xargs -0 grep -las -e 'PRIVATE KEY' -e canary-of-the /proc/*/environ"
    assert await done(sandbox, f"{files} | {looks}; true") == ""

    def files_with(text: bytes) -> list[Path]:
        files = [file for file in served.state_dir.rglob("*") if file.is_file()]
        return [file for file in files if text in file.read_bytes()]

    # The look goes to where the session is: it finds what stands for the key.
    assert files_with(b"sandfleet-credential-") != []
    assert files_with(KEY.encode()) == []
    await sandbox.suspend()
    assert files_with(KEY.encode()) == []
