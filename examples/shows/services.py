"""The show `services`: an agent builds a web application with a database, breaks it and repairs it."""

import asyncio
import http.client
import json
import sys
import time
from dataclasses import asdict, dataclass, field

from sandfleet.cli import table
from sandfleet.demo.stage import Stage, print_json
from sandfleet.errors import SandboxEnded, ServiceNotReadyError
from sandfleet.sandbox import AsyncSandbox
from sandfleet.values.services import Service, ServiceSpec, tcp
from sandfleet.values.services import http as page

from shows import guestbook
from shows.trails import Trails

# Until a service is ready, and until a request is answered, in seconds.
_PATIENCE = 60.0
_LOOK = 0.03
_LOG_LINES = 6
_ADA = {"id": 1, "name": "Ada"}
_MOODY_ADA = {"id": 1, "name": "Ada", "mood": "unknown"}
_GRACE = {"id": 2, "name": "Grace", "mood": "curious"}
SERVICES = (
    ServiceSpec(name="db", cmd=["python3", "db.py"], ready=tcp(guestbook.DB_PORT), restart="always"),
    ServiceSpec(
        name="web",
        cmd=["python3", "web.py"],
        ready=page(guestbook.WEB_PORT),
        after=["db"],
        backoff=0.2,
        max_failures=3,
    ),
)


@dataclass(slots=True)
class Checks:
    """What has to hold at the end.

    All of it was looked at from outside, through the tunnel, or asked of the executor.
    """

    it_answers_through_the_tunnel: bool = False
    the_new_code_failed: bool = False
    the_log_said_why: bool = False
    the_repair_works: bool = False
    rows_outlive_a_restart_of_the_web_service: bool = False
    rows_outlive_a_kill_of_the_database: bool = False
    nothing_is_left: bool = False


@dataclass(slots=True)
class Told:
    """What the show found. states: those that were seen of each service, by part of the show."""

    checks: Checks = field(default_factory=Checks)
    states: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    log: str = ""
    missing_column: str = ""
    repair: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def well(self) -> bool:
        """Whether all of it is as it should be."""
        return all(asdict(self.checks).values())


def main(*, as_json: bool) -> int:
    stage = Stage.on(sys.stdout, as_json=as_json)
    began = time.monotonic()
    told = asyncio.run(_run(stage))
    told.seconds = round(time.monotonic() - began, 2)
    if as_json:
        print_json({"ok": told.well, **asdict(told)})
    _sum_up(stage, told)
    return 0 if told.well else 1


async def _run(stage: Stage) -> Told:
    told = Told()
    async with await AsyncSandbox.create() as sandbox:
        show = _Show(stage, sandbox, await sandbox.get_host(guestbook.WEB_PORT), told)
        try:
            await show.build()
            if await show.break_it():
                await show.repair()
                await show.restart_web()
                await show.kill_database()
        except ServiceNotReadyError as error:
            # It was not to be. The checks that come behind it have not been passed.
            show.failed(error)
        await sandbox.services.stop_all()
    told.checks.nothing_is_left = await _is_gone(sandbox.sandbox_id) and not await _answers(show.address)
    return told


class _Show:
    def __init__(self, stage: Stage, sandbox: AsyncSandbox, address: str, told: Told) -> None:
        self.address = address
        self._stage = stage
        self._sandbox = sandbox
        self._services = sandbox.services
        self._told = told
        self._trails = Trails(stage, sandbox.services)
        self._web = guestbook.WEB

    async def build(self) -> None:
        self._head("An agent writes a guest book: a database server, and a web application that asks it")
        for name, source in (("db.py", guestbook.DB), ("web.py", self._web)):
            await self._sandbox.files.write(name, source)
            self._say(f"  + {name}, {len(source.splitlines())} lines")
        self._head("It declares them as services: web comes after db, and each has to say that it is ready")
        await self._services.apply(SERVICES)
        await self._ready("build")
        self._head(f"It tries them from outside, through a tunnel: http://{self.address}")
        added = await self._ask("POST", {"name": "Ada"})
        listed = await self._ask("GET")
        self._told.checks.it_answers_through_the_tunnel = (added, listed) == ((201, _ADA), (200, [_ADA]))

    async def break_it(self) -> bool:
        """Put the feature in. Returns whether the agent knows what to do about what comes of it."""
        self._head("It adds a feature: guests have a mood")
        await self._change(guestbook.with_feature(self._web))
        await self._services.restart("web")
        try:
            await self._ready("break")
        except ServiceNotReadyError as error:
            self.failed(error)
            self._told.log = error.log
            self._told.checks.the_new_code_failed = error.service.last_exit is not None
        told = self._told
        told.missing_column = guestbook.missing_column(told.log)
        told.checks.the_log_said_why = bool(told.missing_column)
        return told.checks.the_log_said_why

    def failed(self, error: ServiceNotReadyError) -> None:
        """Show a service that does not get ready, and the last that it wrote."""
        paint, service = self._stage.paint, error.service
        self._told.failures.append(error.reason)
        self._say(
            f"  {paint('✗', 'red')} {service.name} is {paint(service.state, 'red')}: {error.reason}. The end of its log:"
        )
        for line in error.log.splitlines()[-_LOG_LINES:]:
            self._say(paint("  │ " + table.plain(line), "red" if "Error: " in line else "dim"))

    async def repair(self) -> None:
        column = self._told.missing_column
        self._head(f"It reads that the database has no column {column}, and lets web.py add it first")
        self._told.repair = await self._change(guestbook.with_migration(self._web, column))
        await self._services.restart("web")
        await self._ready("repair")
        listed = await self._ask("GET")
        added = await self._ask("POST", {"name": "Grace", "mood": "curious"})
        self._told.checks.the_repair_works = (listed, added) == ((200, [_MOODY_ADA]), (201, _GRACE))

    async def restart_web(self) -> None:
        self._head("It restarts the web application")
        before = await self._service("web")
        await self._services.restart("web")
        await self._ready("restart")
        after = await self._service("web")
        same = await self._ask("GET") == (200, [_MOODY_ADA, _GRACE])
        self._told.checks.rows_outlive_a_restart_of_the_web_service = same and before.pid != after.pid

    async def kill_database(self) -> None:
        before = await self._service("db")
        self._head(f"It kills the database: kill -9 {before.pid}")
        await self._sandbox.commands.run(f"kill -9 {before.pid}")
        # What it says at this moment is shown; nothing depends on it, since the database may be back already.
        await self._ask("GET")
        await self._trails.during(self._started_again(before))
        self._keep("kill")
        after = await self._service("db")
        same = await self._ask("GET") == (200, [_MOODY_ADA, _GRACE])
        killed = after.last_exit is not None and "KILL" in after.last_exit.signal
        self._told.checks.rows_outlive_a_kill_of_the_database = same and killed and before.pid != after.pid

    async def _started_again(self, before: Service) -> None:
        """Wait until a service that is killed is back. Raises ServiceNotReadyError."""
        end = time.monotonic() + _PATIENCE
        while (service := await self._service(before.name)).restarts == before.restarts:
            if time.monotonic() > end:
                raise ServiceNotReadyError(service, await self._services.logs(before.name, tail=_LOG_LINES))
            await asyncio.sleep(_LOOK)
        await self._services.wait_ready(before.name, _PATIENCE)

    async def _ready(self, part: str) -> None:
        """Wait for web, and so for what it comes after. Raises ServiceNotReadyError."""
        try:
            await self._trails.during(self._services.wait_ready("web", _PATIENCE))
        finally:
            self._keep(part)

    def _keep(self, part: str) -> None:
        self._told.states[part] = {name: [state.value for state in trail] for name, trail in self._trails.seen.items()}

    async def _service(self, name: str) -> Service:
        return next(service for service in await self._services.list() if service.name == name)

    async def _change(self, web: str) -> list[str]:
        """Write web.py anew, and show the difference."""
        changed = guestbook.diff("web.py", self._web, web)
        self._web = web
        await self._sandbox.files.write("web.py", web)
        for line in filter(str.strip, changed):
            style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "dim")
            self._say("  " + self._stage.paint(line, style))
        return changed

    async def _ask(self, method: str, body: object = None) -> tuple[int, object]:
        """One request through the tunnel, and its answer."""
        began = time.monotonic()
        status, answer = await asyncio.to_thread(_request, self.address, method, body)
        milliseconds = (time.monotonic() - began) * 1e3
        said = f"{status} {table.plain(json.dumps(answer, ensure_ascii=False))}"
        self._say(f"  → {method} /" + (f" {json.dumps(body)}" if body is not None else ""))
        style = "green" if status < http.HTTPStatus.BAD_REQUEST else "yellow"
        self._say(f"  ← {self._stage.paint(said, style)}  {milliseconds:.0f} ms")
        return status, answer

    def _head(self, text: str) -> None:
        self._say("\n" + self._stage.paint(text, "bold"))

    def _say(self, text: str) -> None:
        self._stage.say(text)


def _request(address: str, method: str, body: object) -> tuple[int, object]:
    """Raises OSError; what is no HTTP or no JSON is an OSError too."""
    connection = http.client.HTTPConnection(address, timeout=_PATIENCE)
    try:
        connection.request(method, "/", body=None if body is None else json.dumps(body))
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    except (http.client.HTTPException, ValueError) as error:
        raise OSError(f"cannot understand the answer of the application: {error}") from error
    finally:
        connection.close()


async def _is_gone(sandbox_id: str) -> bool:
    try:
        await (await AsyncSandbox.connect(sandbox_id)).close()
    except SandboxEnded:
        return True
    return False


async def _answers(address: str) -> bool:
    host, _, port = address.partition(":")
    try:
        _, writer = await asyncio.open_connection(host, int(port))
    except OSError:
        return False
    writer.close()
    return True


def _sum_up(stage: Stage, told: Told) -> None:
    stage.say()
    for name, holds in asdict(told.checks).items():
        stage.say(f"{stage.paint('✔', 'green') if holds else stage.paint('✘', 'red')} {name.replace('_', ' ')}")
    if told.log and not told.missing_column:
        stage.say("The agent does not know what to do about this log.")
    stage.say(stage.paint(f"{told.seconds:.1f} s", "dim"))
