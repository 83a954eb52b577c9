"""What the tests of services share."""

from contract.executor.harness import until
from sandfleet.values.services import ServiceSpec

MIB = 1 << 20
# Of probes.
SOON = {"interval": 0.1, "timeout": 5.0}
SLEEP = "exec sleep 1000000"
# Listens without the time that a server takes to be imported.
LISTEN = "import socket, time; s = socket.create_server(('127.0.0.1', {port})); time.sleep(1e6)"


def spec(name, cmd=SLEEP, **options):
    return ServiceSpec(name=name, cmd=cmd, **options)


def listening(port):
    return ["python3", "-c", LISTEN.format(port=port)]


async def gone(sandbox):
    return not await sandbox.services.list()


async def back_to(sandbox, processes):
    return (await sandbox.usage()).processes <= processes


async def one(services, name):
    return next(each for each in await services.list() if each.name == name)


async def in_state(services, name, *states):
    """Waits for it; the service then."""

    async def look():
        found = await one(services, name)
        return found if found.state in states else None

    return await until(look)


async def alive(sandbox, marker):
    """Whether a process has this in its arguments."""
    return (await sandbox.commands.run(["pgrep", "-f", marker])).exit_code == 0


async def names_are(services, names):
    return {each.name for each in await services.list()} == names


async def ready_with_another_pid(services, pid):
    found = await one(services, "web")
    return found if found.is_ready and found.pid != pid else None


async def completed(services, line):
    """Runs a line as a service, to its end."""
    await services.start("helper", line)
    await in_state(services, "helper", "completed")


async def logs_hold(services, text):
    return text in await services.logs("web")


async def log_problem(services, name):
    return (await one(services, name)).log_problem
