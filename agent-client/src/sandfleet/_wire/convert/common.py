"""Messages as values, and back. Executors are hostile: nothing here trusts a number, a size or an enum."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import asdict, fields
from datetime import UTC, datetime
from typing import Any, cast

from sandfleet import values
from sandfleet._wire import api
from sandfleet._wire.convert.enums import numbers_of, values_of, words_of
from sandfleet.errors import InvalidArgument
from sandfleet.values.environment import DeclaredPackage, Environment, Installation, Notice, Package, PreloadedModule
from sandfleet.values.execution import Rollback
from sandfleet.values.sandbox import EgressInfo, EgressState

_NAMES_LIMIT = 100_000
_MESSAGE_LIMIT = 4096
_LOST_LIMIT = 16
_TEXT_LIMIT = 1_024
_ID_LIMIT = 256
_MODULES_LIMIT = 64
_MAX_PACKAGES = 5000
_MAX_DECLARED = 64
_MAX_LANGUAGES = 64
# The limits that are times.
_TIMES = ("max_timeout", "default_timeout")


def seconds(value: float | None) -> api.duration.Duration | None:
    """Make a Duration; None stays None (unset). Raises InvalidArgument for an invalid time."""
    if value is None:
        return None
    wrong = InvalidArgument(f"cannot wait {value} seconds: no length of time", reason="InvalidTimeout")
    if value < 0:
        raise wrong
    made = api.duration.Duration()
    try:
        made.FromNanoseconds(round(value * 1e9))
    except (ValueError, OverflowError):
        raise wrong from None
    return made


def seconds_of(value: api.duration.Duration) -> float:
    """Read a duration in seconds."""
    return value.seconds + value.nanos / 1e9


def moment(value: api.timestamp.Timestamp) -> datetime | None:
    """Read a time; None if it is unset or invalid."""
    try:
        return value.ToDatetime(tzinfo=UTC) if value.seconds else None
    except (ValueError, OverflowError):
        return None


def outcome(number: int) -> values.Outcome | None:
    """Read an outcome; None for one that this client does not know."""
    return values_of(api.common.Outcome, values.Outcome).get(number)


def blame(number: int, ended: values.Outcome) -> values.Blame | None:
    """Read a blame. An unknown blame of a failure is the platform's: it was not the code."""
    if ended is values.Outcome.OK:
        return None
    return values_of(api.common.Blame, values.Blame).get(number, values.Blame.PLATFORM)


def stream(number: int) -> values.Stream | None:
    """Read which stream it is; None for one that this client does not know."""
    return values_of(api.common.Stream, values.Stream).get(number)


def isolation(number: int) -> values.Isolation:
    """Read a level of isolation."""
    return values_of(api.session.Isolation, values.Isolation).get(number, values.Isolation.UNKNOWN)


def isolation_number(level: values.Isolation) -> api.session.Isolation:
    """Write a level of isolation."""
    numbers = {known: number for number, known in values_of(api.session.Isolation, values.Isolation).items()}
    return cast("api.session.Isolation", numbers.get(level, 0))


def usage(message: api.common.Usage) -> values.Usage:
    """Read what an execution used."""
    return values.Usage(
        wall_seconds=message.wall_seconds,
        cpu_seconds=message.cpu_seconds,
        peak_memory_bytes=message.peak_memory_bytes,
        peak_processes=message.peak_processes,
        stdout_bytes=message.stdout_bytes,
        stderr_bytes=message.stderr_bytes,
        written_bytes=message.written_bytes if message.HasField("written_bytes") else None,
    )


def changes(message: api.common.FileChanges) -> values.FileChanges:
    """Read the files that changed."""
    return values.FileChanges(
        created=_names(message.created),
        modified=_names(message.modified),
        deleted=_names(message.deleted),
        complete=message.complete,
        omitted=message.omitted,
    )


def _names(raw: Iterable[bytes]) -> tuple[str, ...]:
    return tuple(os.fsdecode(name) for name, _ in zip(raw, range(_NAMES_LIMIT), strict=False))


def lost(*parts: Iterable[str]) -> tuple[str, ...]:
    """Join lists of lost things: each once, in order, bounded."""
    seen = dict.fromkeys(word[:64] for part in parts for word, _ in zip(part, range(_LOST_LIMIT), strict=False))
    return tuple(seen)[:_LOST_LIMIT]


def rollback(message: api.common.ExecutionFinished) -> Rollback | None:
    """Read a rollback of the variables."""
    if not message.HasField("rollback"):
        return None
    said = message.rollback
    return Rollback(
        said.done,
        said.message[:_MESSAGE_LIMIT],
        restored=lost(said.restored),
        kept=lost(said.kept),
        refused=said.refused[:64],
        cell_number=said.cell_number,
        cells_undone=said.cells_undone,
    )


def error(message: api.common.ExecutionError) -> values.ExecutionError:
    """Read an exception of the user's code."""
    frames = tuple(values.Frame(part.file, part.line, part.function, part.source) for part in message.frames[:200])
    return values.ExecutionError(message.name, message.value, message.traceback, frames, message.dropped_bytes)


def result(message: api.common.Result) -> values.Result:
    """Read a displayed result: text types become str."""
    parts = {part.mime_type: _part(part.mime_type, part.data) for part in message.parts[:100]}
    return values.Result(
        parts,
        is_main_result=message.is_main_result,
        dropped_bytes=message.dropped_bytes,
        display_id=message.display_id[:_ID_LIMIT],
        is_update=message.is_update and bool(message.display_id),
    )


def _part(mime: str, data: bytes) -> str | bytes:
    textual = mime.startswith("text/") or mime.endswith(("json", "+xml")) or mime == "application/javascript"
    return data.decode("utf-8", "replace") if textual else data


def context(message: api.interpreter.Context) -> values.Context:
    """Read a context."""
    return values.Context(
        context_id=message.context_id,
        language=message.language,
        state=words_of(api.interpreter.ContextState).get(message.state, "unknown"),
        generation=message.generation,
        executions=message.executions,
        copied_cell=message.copied_cell,
        autosaved=_autosaved(message.autosaved) if message.HasField("autosaved") else None,
        cwd=message.cwd,
    )


def _autosaved(message: api.interpreter.AutomaticSave) -> values.Autosaved:
    newest = saved_state(message.state) if message.HasField("state") else None
    return values.Autosaved(newest, message.problem[:_TEXT_LIMIT])


def saved_state(message: api.interpreter.SavedState) -> values.SavedState:
    """Read a saved state."""
    return values.SavedState(
        name=message.name[:_TEXT_LIMIT],
        context_id=message.context_id[:_TEXT_LIMIT],
        created=moment(message.created),
        cell_number=message.cell_number,
        size=message.size_bytes,
        saved=message.saved,
        unsaved=message.unsaved,
    )


def environment(message: api.session.GetEnvironmentResponse) -> Environment:
    """Read the environment of a sandbox."""
    packages = tuple(
        Package(each.name, each.version, words_of(api.session.PackageOrigin).get(each.origin, "unknown"))
        for each in message.packages[:_MAX_PACKAGES]
    )
    return Environment(
        python_version=message.python_version,
        kernel=message.kernel,
        languages={each.language: each.version for each in message.languages[:_MAX_LANGUAGES]},
        packages=packages,
        fixed_envs=dict(message.fixed_envs),
        declared=tuple(
            DeclaredPackage(
                each.requirement,
                words_of(api.session.InstallState).get(each.state, "unknown"),
                each.name,
                each.version,
                words_of(api.session.PackageOrigin).get(each.origin, ""),
            )
            for each in message.declared[:_MAX_DECLARED]
        ),
        installation=installation(message.installation) if message.HasField("installation") else None,
    )


def installation(message: api.session.Installation) -> Installation:
    """Read the installation of the template's packages."""
    state = words_of(api.session.InstallState).get(message.state, "unknown")
    return Installation(state, message.reason, message.message[:_MESSAGE_LIMIT], message.log[: 4 * _MESSAGE_LIMIT])


def preloaded(messages: Iterable[api.session.PreloadedModule]) -> tuple[PreloadedModule, ...]:
    """Read the modules that were loaded ahead."""
    words = words_of(api.session.PreloadState)
    return tuple(
        PreloadedModule(each.module[:_TEXT_LIMIT], words.get(each.state, "unknown"), each.problem[:_MESSAGE_LIMIT])
        for each in list(messages)[:_MODULES_LIMIT]
    )


def denied_hosts(finished: api.common.ExecutionFinished) -> tuple[str, ...]:
    """Read the hosts that were refused."""
    return tuple(host[:_ID_LIMIT] for host in finished.denied_hosts[:_LOST_LIMIT])


def notices(started: api.common.ExecutionStarted) -> tuple[Notice, ...]:
    """Read the notices of a start."""
    said = started.notices[:_LOST_LIMIT]
    return tuple(Notice(each.reason[:_TEXT_LIMIT], each.message[:_MESSAGE_LIMIT]) for each in said)


def command(message: api.process.RunningCommand) -> values.RunningCommand:
    """Read a running command."""
    return values.RunningCommand(message.execution_id, _names(message.argv), moment(message.started), pid=message.pid)


def file_info(message: api.filesystem.FileInfo) -> values.FileInfo:
    """Read a file's description."""
    return values.FileInfo(
        path=os.fsdecode(message.path),
        type=values_of(api.filesystem.FileType, values.FileType).get(message.type, values.FileType.OTHER),
        size=message.size,
        mode=message.mode & 0o7777,
        modified=moment(message.modified),
        symlink_target=os.fsdecode(message.symlink_target),
        owner=message.owner,
        group=message.group,
    )


def sandbox(message: api.fleet.Sandbox) -> values.SandboxInfo:
    """Read what the fleet knows of a sandbox."""
    return values.SandboxInfo(
        sandbox_id=message.sandbox_id,
        sandbox_uid=message.sandbox_uid,
        template=message.template,
        state=words_of(api.fleet.SandboxState).get(message.state, "unknown"),
        labels=dict(message.labels),
        workspace_id=message.workspace_id,
        created=moment(message.created),
        lease_expires=moment(message.lease_expires),
        suspended_until=moment(message.suspended_until),
        isolation=isolation(message.isolation),
        restarts=message.restarts,
        last_restart_reason=message.last_restart_reason,
        pool=message.pool,
        contract=message.contract,
        egress=egress(message.egress),
    )


def egress(message: api.fleet.EgressStatus) -> EgressInfo:
    """Read the state of a sandbox's egress."""
    state = values_of(api.fleet.EgressState, EgressState).get(message.state, EgressState.UNKNOWN)
    return EgressInfo(state, message.reason, message.message, moment(message.since))


def egress_number(wish: str | None) -> api.fleet.Egress:
    """Write the egress of a claim; None means the template's. Raises InvalidArgument."""
    numbers = numbers_of(api.fleet.Egress)
    if wish is not None and wish not in numbers:
        raise InvalidArgument(f'cannot claim: egress is "none" or "template", not {wish!r}', reason="InvalidEgress")
    return cast("api.fleet.Egress", numbers[wish] if wish else 0)


def bound(message: api.fleet.Bound) -> values.Bound:
    """Read a served claim."""
    return values.Bound(
        message.warm, values_of(api.fleet.EgressState, EgressState).get(message.egress, EgressState.UNKNOWN)
    )


def pool(message: api.fleet.Pool) -> values.PoolInfo:
    """Read a pool."""
    return values.PoolInfo(
        pool_id=message.pool_id,
        template=message.template,
        target_warm=message.target_warm,
        warm=message.warm,
        starting=message.starting,
        claimed=message.claimed,
        waiting=message.waiting,
        hit_rate=message.hit_rate if message.HasField("hit_rate") else None,
        reason=message.reason,
    )


def limits(message: api.common.Limits) -> values.Limits:
    """Read limits."""
    said = {each.name: getattr(message, each.name) for each in fields(values.Limits)}
    return values.Limits(**said | {name: seconds_of(said[name]) for name in _TIMES})


def limits_message(value: values.Limits) -> api.common.Limits:
    """Write limits."""
    given: dict[str, Any] = asdict(value)
    return api.common.Limits(**given | {name: seconds(given[name] or None) for name in _TIMES})
