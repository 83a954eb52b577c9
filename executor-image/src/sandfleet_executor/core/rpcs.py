"""What the executor does with each RPC beside serving it: the one table of its API.

Rows say which scope a token needs, whether the call counts as use of the sandbox, whether it waits for a reviewer in a
reviewed sandbox, what the journal has of it, and what its errors are about. A test compares the table with the protos.
An RPC that is not in the table is work, is refused in a reviewed sandbox, and is recorded by its name.
"""

from dataclasses import dataclass, replace
from enum import Enum, auto

PACKAGE = "sandfleet_api.executor.v1"


class Use(Enum):
    """Whether a call counts as use of the sandbox."""

    # Its caller works with the sandbox.
    WORK = auto()
    # The fleet keeps the sandbox by it, and does no work of a caller.
    KEEPING = auto()
    # It only looks at the sandbox, or waits for its code: a watcher does not keep an idle sandbox alive.
    LOOKING = auto()


class Gate(Enum):
    """What a reviewed sandbox does with a call.

    What runs code or plants it waits. What only looks, ends something or belongs to the fleet is free. What cannot be
    shown to a person is refused.
    """

    FREE = auto()
    # Free too, but it changes what a reviewer has looked at: answers to earlier looks count no more.
    COUNTED = auto()
    # The execution waits when its turn has come; a denial is its outcome.
    EXECUTION = auto()
    # The call itself waits; a denial is its error.
    CALL = auto()
    # Bytes of a connection or a table, or code of a completion, cannot be shown before they have an effect.
    REFUSED = auto()


class Entry(Enum):
    """Where the journal's record of a call comes from."""

    # It changes nothing of the session.
    READS = auto()
    # The call has a record when it has been answered.
    CALL = auto()
    # The execution has one when it ends.
    EXECUTION = auto()
    # The call goes on to an execution, whose record says so.
    INPUT = auto()
    # The session writes it, since it knows more than the call.
    SESSION = auto()


@dataclass(frozen=True)
class Rpc:
    """The row of an RPC."""

    gate: Gate = Gate.REFUSED
    entry: Entry = Entry.CALL
    # The kind and the operation of its record. A "call" has its whole request in it.
    kind: str = "call"
    operation: str = ""
    # Whether a call that fails may have changed something, so that it has a record too.
    partial: bool = False
    use: Use = Use.WORK
    # The field of the request with what an error of the call is about. "": there is none.
    subject: str = ""
    # The scope that a token needs. "" in a row: the scope of its service. "" of an unknown service: nothing allows it.
    scope: str = ""
    # "Service/Method".
    name: str = ""


def _looks(use: Use = Use.WORK, subject: str = "") -> Rpc:
    return Rpc(Gate.FREE, Entry.READS, use=use, subject=subject)


def _calls(gate: Gate, kind: str, operation: str = "", *, partial: bool = False, subject: str = "") -> Rpc:
    return Rpc(gate, Entry.CALL, kind, operation, partial, subject=subject)


def _fleets(entry: Entry, kind: str = "call", use: Use = Use.KEEPING, subject: str = "") -> Rpc:
    """Rows of calls that the fleet makes."""
    return Rpc(Gate.FREE, entry, kind, use=use, subject=subject, scope="admin")


# Service → (scope, its methods).
SERVICES: dict[str, tuple[str, dict[str, Rpc]]] = {
    "InterpreterService": (
        "interpreter",
        {
            "CreateContext": _calls(Gate.CALL, "context", "created", subject="context_id"),
            "ListContexts": _looks(),
            "Execute": Rpc(Gate.EXECUTION, Entry.EXECUTION, subject="execution_id"),
            "Attach": _looks(subject="execution_id"),
            "Interrupt": _calls(Gate.FREE, "context", "interrupted", subject="context_id"),
            # As SendInput: code may run what it reads.
            "AnswerInput": Rpc(Gate.CALL, Entry.INPUT, subject="execution_id"),
            # A copy of what was approved, and a fresh start: neither runs anything that no reviewer has seen. But an
            # approved cell may mean something else in them: without the approved `def open(...)`, `open` is Python's.
            "ForkContext": _calls(Gate.COUNTED, "context", "forked", subject="context_id"),
            "RestartContext": _calls(Gate.COUNTED, "context", "restarted", subject="context_id"),
            "DeleteContext": _calls(Gate.COUNTED, "context", "deleted"),
            # Both may run code of an object's own properties.
            "Complete": _calls(Gate.REFUSED, "look", "complete", subject="context_id"),
            "Inspect": _calls(Gate.REFUSED, "look", "inspect", subject="context_id"),
            # A name is all that is asked: it runs nothing that no reviewer has seen.
            "GetTable": _looks(subject="name"),
            # A reviewer cannot read a stream of Arrow. A file of text waits for one, and an approved cell reads that.
            "PutTable": _calls(Gate.REFUSED, "table", "put"),
            # A reviewer of RestoreState sees the hash of a state and what it has: another state asks again.
            "SaveState": _calls(Gate.COUNTED, "state", "saved", subject="name"),
            "RestoreState": _calls(Gate.CALL, "state", "restored", partial=True, subject="name"),
            "ListStates": _looks(),
            "DeleteState": _calls(Gate.COUNTED, "state", "deleted", subject="name"),
        },
    ),
    "ProcessService": (
        "process",
        {
            "Start": Rpc(Gate.EXECUTION, Entry.EXECUTION, subject="execution_id"),
            "Attach": _looks(subject="execution_id"),
            "SendInput": Rpc(Gate.CALL, Entry.INPUT, subject="execution_id"),
            "CloseInput": Rpc(Gate.FREE, Entry.INPUT, subject="execution_id"),
            "Signal": Rpc(Gate.FREE, Entry.INPUT, subject="execution_id"),
            "Resize": Rpc(Gate.FREE, Entry.INPUT, subject="execution_id"),
            "List": _looks(),
        },
    ),
    "ServiceManagerService": (
        "process",
        {
            "Apply": _calls(Gate.CALL, "service", "applied", partial=True),
            "Start": _calls(Gate.CALL, "service", "started"),
            "Stop": _calls(Gate.FREE, "service", "stopped"),
            "Restart": _calls(Gate.CALL, "service", "restarted", subject="name"),
            "List": _looks(Use.LOOKING),
            "Logs": _looks(subject="name"),
            "WaitReady": _looks(subject="name"),
        },
    ),
    "FilesystemService": (
        "filesystem",
        {
            "Read": _looks(),
            "Write": _calls(Gate.CALL, "file", "write"),
            "Stat": _looks(),
            "ListDirectory": _looks(),
            # A folder, a new name or a missing file changes what `import` finds.
            "MakeDir": _calls(Gate.CALL, "file", "mkdir"),
            "Move": _calls(Gate.CALL, "file", "move"),
            "Remove": _calls(Gate.CALL, "file", "remove", partial=True),
            "Watch": _looks(),
            "Archive": _looks(),
            "Extract": _calls(Gate.CALL, "file", "extract", partial=True),
            "Glob": _looks(),
            "Search": _looks(),
        },
    ),
    "SessionService": (
        "session",
        {
            "Open": _fleets(Entry.SESSION, subject="session_id"),
            "Suspend": _fleets(Entry.CALL, "suspended"),
            "Resume": _fleets(Entry.CALL, "resumed"),
            "Describe": _looks(Use.LOOKING),
            "GetEnvironment": _looks(),
            "Health": _looks(Use.LOOKING),
            "Usage": _looks(Use.LOOKING),
            "WatchUsage": _looks(Use.LOOKING),
            "ProbeEgress": _fleets(Entry.READS, use=Use.LOOKING),
            "Close": _fleets(Entry.SESSION, use=Use.WORK),
        },
    ),
    # What a connection carries goes to a service, and is not recorded; that it was opened is.
    "PortService": ("ports", {"Tunnel": _calls(Gate.REFUSED, "call")}),
    "IdentityService": ("admin", {"GetSigningRequest": _looks(), "InstallCertificate": _looks()}),
    # It serves brokered sandboxes only. Each call of a tool has a record.
    "ToolBrokerService": ("tools", {"Serve": Rpc(Gate.FREE, Entry.SESSION, use=Use.LOOKING)}),
    "ReviewService": (
        "review",
        {
            "ListPending": _looks(),
            "WatchPending": _looks(Use.LOOKING),
            "Answer": Rpc(Gate.FREE, Entry.SESSION),
        },
    ),
    "JournalService": (
        "session",
        {"Head": _looks(Use.LOOKING, subject="pod_uid"), "Read": _looks(Use.LOOKING, subject="pod_uid")},
    ),
    # All belong to the fleet, which has no token for them but for a transfer. A restore changes what a reviewer has
    # looked at; whether its snapshot may come into a reviewed sandbox, the fleet decides by the snapshot's contract.
    "SnapshotService": (
        "snapshot",
        {
            "Save": _looks(Use.LOOKING),
            "Unhold": _looks(Use.KEEPING),
            # Its record says what came, not which bytes.
            "Restore": Rpc(Gate.COUNTED, Entry.SESSION, use=Use.KEEPING),
        },
    ),
}
# "Service/Method" → its row, complete.
RPCS = {
    f"{service}/{method}": replace(rpc, scope=rpc.scope or scope, name=f"{service}/{method}")
    for service, (scope, methods) in SERVICES.items()
    for method, rpc in methods.items()
}
_BY_PATH = {f"/{PACKAGE}.{name}": rpc for name, rpc in RPCS.items()}


def rpc_of(path: str) -> Rpc:
    """The row of "/package.Service/Method"."""
    if rpc := _BY_PATH.get(path):
        return rpc
    package, _, name = path.removeprefix("/").rpartition(".")
    scope, _ = SERVICES.get(name.partition("/")[0], ("", {}))
    return Rpc(scope=scope if package == PACKAGE else "", name=name)
