"""The fleet's loop behind its gRPC face, over a backend that starts nothing."""

import asyncio
import contextlib

import grpc
from sandfleet_api.executor.v1 import common_pb2, session_pb2
from sandfleet_api.fleet.v1 import fleet_pb2 as pb
from sandfleet_api.fleet.v1.fleet_pb2_grpc import FleetServiceStub, add_FleetServiceServicer_to_server
from sandfleet_operator.api.errors import Code, FleetError, Problem
from sandfleet_operator.api.values import Exit, State
from sandfleet_operator.cluster.clock import SteadyClock
from sandfleet_operator.executors.reviews import ReviewClient
from sandfleet_operator.executors.tokens import Token
from sandfleet_operator.fleet.backend import Exited, Ready
from sandfleet_operator.fleet.driver import FleetDriver
from sandfleet_operator.fleet.local.api import LocalFleetApi
from sandfleet_operator.fleet.local.reviews import LocalReviewed, ReviewerTokens
from sandfleet_operator.fleet.reviews.board import ReviewBoard
from sandfleet_operator.fleet.servicer import FleetServicer
from sandfleet_operator.fleet.suspender import Suspender
from sandfleet_operator.plan.scheduler.limits import FleetLimits
from sandfleet_operator.plan.scheduler.scheduler import Scheduler
from support.fleet.builders import TEMPLATE, a_pool


class World:
    """A backend and its executors: incarnations are names in a set. `hold` keeps new ones from getting ready."""

    def __init__(self):
        self.alive, self.opened, self.closed = {}, {}, False
        self.hold = False
        self.unfit = ""
        self.held, self.dropped = [], []
        self.events = asyncio.Queue()

    async def start(self, sandbox):
        self.alive[sandbox.sandbox_uid] = sandbox
        if self.hold:
            self.held.append(sandbox.sandbox_uid)
        else:
            self.events.put_nowait(Ready(sandbox.sandbox_uid, f"unix:///{sandbox.sandbox_uid}"))

    def let_go(self):
        self.hold = False
        for uid in self.held:
            self.events.put_nowait(Ready(uid, f"unix:///{uid}"))
        self.held.clear()

    async def claim(self, sandbox):
        """There is no other fleet."""

    def answered(self, sandbox):
        return 0.0

    async def record(self, sandbox):
        """There is no next fleet."""

    async def gone(self, sandbox):
        """Nothing is left of it."""

    def decided(self, sandbox):
        """There is no other writer."""

    async def suspend(self, sandbox):
        self.end(sandbox.sandbox_uid, Exit(code=0))

    def can_suspend(self, sandbox):
        return True

    async def resume(self, sandbox):
        await self.start(sandbox)

    async def stop(self, sandbox_uid):
        self.end(sandbox_uid, Exit(code=0))

    def end(self, sandbox_uid, end):
        if self.alive.pop(sandbox_uid, None):
            self.events.put_nowait(Exited(sandbox_uid, end))

    async def drop_workspace(self, workspace_id):
        self.dropped.append(workspace_id)

    async def next_event(self):
        return await self.events.get()

    async def close(self, sandbox=None):
        self.closed = sandbox is None

    async def connect(self, sandbox, address):
        if self.unfit:
            raise FleetError(Problem(Code.INTERNAL, "SandboxUnfit", self.unfit))

    async def open(self, sandbox, lease):
        if sandbox.sandbox_uid not in self.alive:
            raise FleetError(Problem(Code.UNAVAILABLE, "ExecutorGone", "cannot open the sandbox: gone"))
        self.opened[sandbox.sandbox_uid] = (sandbox, lease)

    async def lease_left(self, sandbox):
        return None

    async def answers(self, sandbox):
        return sandbox.sandbox_uid in self.alive

    async def forget(self, sandbox_uid):
        self.opened.pop(sandbox_uid, None)

    async def forget_all(self):
        self.opened.clear()

    def address(self, sandbox):
        return f"unix:///{sandbox.sandbox_uid}"

    def caller_token(self, sandbox, lifetime):
        return Token(f"token for {sandbox.sandbox_uid}", 1e9 + lifetime)


class WorldsExecutors:
    """The same executors. `in_the_way` refuses a suspension that is not forced."""

    def __init__(self, world):
        self._world = world
        self.in_the_way = None
        self.suspended = []
        # By the id of the sandbox; missing: it is in use.
        self.idle_seconds = {}

    def __getattr__(self, name):
        return getattr(self._world, name)

    async def idle(self, sandbox):
        return self.idle_seconds.get(sandbox.sandbox_id)

    async def suspend(self, sandbox, *, force, unused=False):
        if sandbox.sandbox_uid not in self._world.alive:
            raise FleetError(Problem(Code.UNAVAILABLE, "ExecutorGone", "cannot suspend the sandbox: gone"))
        if self.in_the_way and not force:
            raise self.in_the_way
        self.suspended.append((sandbox.sandbox_uid, force))
        return session_pb2.Suspension(services=["web"])

    async def resume(self, sandbox):
        return session_pb2.Resumption(services=["web"]) if self.suspended else None


class Service:
    def __init__(self, world, scheduler, fleet, stub):
        self.world, self.scheduler, self.fleet, self.stub = world, scheduler, fleet, stub

    async def claim(self, request_id="r1", metadata=(), **fields):
        """All that the stream says."""
        request = pb.ClaimRequest(request_id=request_id, **fields)
        return [response async for response in self.stub.Claim(request, metadata=metadata)]

    async def bound(self, request_id="r1", **fields):
        return (await self.claim(request_id, **fields))[-1].bound

    async def until(self, condition):
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.01)

    def states(self):
        return sorted(one.state.value for one in self.scheduler.inventory.all())


@contextlib.asynccontextmanager
async def a_service(directory, **policy):
    numbers, world = iter(range(1, 1000)), World()
    settings = {"target_warm": 2, "max_sandboxes": 8, "max_starting": 4} | policy
    target = settings.pop("target_warm")
    scheduler = Scheduler(
        [a_pool(target_warm=target)], FleetLimits(**settings), new_id=lambda _: f"id{next(numbers):03}"
    )
    executors = world.executors = WorldsExecutors(world)
    fleet = FleetDriver(scheduler, world, executors, SteadyClock())
    server = grpc.aio.server()
    suspender = Suspender(fleet, world, executors)
    # No sandbox here is reviewed: none of its executors is asked.
    reviewing = (
        ReviewBoard(LocalReviewed(scheduler.inventory, executors), ReviewClient(None)),
        ReviewerTokens(directory),
    )
    api = LocalFleetApi(fleet, suspender, {TEMPLATE.name: TEMPLATE}, "uid:7", reviewing)
    add_FleetServiceServicer_to_server(FleetServicer(api), server)
    server.add_insecure_port(f"unix:{directory}/s")
    await server.start()
    working = asyncio.create_task(fleet.run())
    async with grpc.aio.insecure_channel(f"unix:{directory}/s") as channel:
        service = Service(world, scheduler, fleet, FleetServiceStub(channel))
        try:
            await service.until(lambda: scheduler.inventory.count(State.WARM) == target)
            yield service
        finally:
            await fleet.close()
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            await server.stop(0)


def detail(error):
    trailing = dict(error.trailing_metadata())
    return common_pb2.ErrorDetail.FromString(trailing["sandfleet-error-bin"])
