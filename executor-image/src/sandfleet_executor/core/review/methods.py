"""What a reviewed sandbox does with each RPC: the one table of what waits for approval.

Everything that runs code or plants it waits. What only looks, ends something or belongs to the fleet is free. What
cannot be shown to a person is refused. An RPC that is not in the table is refused too.
"""

from enum import Enum, auto


class Gate(Enum):
    """What becomes of a call."""

    FREE = auto()
    # Free too, but it changes what a reviewer has looked at: answers to earlier looks count no more.
    COUNTED = auto()
    # The execution waits when its turn has come; a denial is its outcome.
    EXECUTION = auto()
    # The call itself waits; a denial is its error.
    CALL = auto()
    # Bytes of a connection or a table, or code of a completion, cannot be shown before they have an effect.
    REFUSED = auto()


METHODS = {
    "InterpreterService/CreateContext": Gate.CALL,
    "InterpreterService/ListContexts": Gate.FREE,
    "InterpreterService/Execute": Gate.EXECUTION,
    "InterpreterService/Attach": Gate.FREE,
    "InterpreterService/Interrupt": Gate.FREE,
    # As SendInput: code may run what it reads.
    "InterpreterService/AnswerInput": Gate.CALL,
    # A copy of what was approved, and a fresh start: neither runs anything that no reviewer has seen. But an approved
    # cell may mean something else in them: without the approved `def open(...)`, `open` is Python's own.
    "InterpreterService/ForkContext": Gate.COUNTED,
    "InterpreterService/RestartContext": Gate.COUNTED,
    "InterpreterService/DeleteContext": Gate.COUNTED,
    "InterpreterService/Complete": Gate.REFUSED,
    "InterpreterService/Inspect": Gate.REFUSED,
    # A name is all that is asked: it runs nothing that no reviewer has seen.
    "InterpreterService/GetTable": Gate.FREE,
    # A reviewer cannot read a stream of Arrow. A file of text waits for one, and an approved cell reads that.
    "InterpreterService/PutTable": Gate.REFUSED,
    # A reviewer of RestoreState sees the hash of a state and what it has: another state of this name asks again.
    "InterpreterService/SaveState": Gate.COUNTED,
    "InterpreterService/RestoreState": Gate.CALL,
    "InterpreterService/ListStates": Gate.FREE,
    "InterpreterService/DeleteState": Gate.COUNTED,
    "ProcessService/Start": Gate.EXECUTION,
    "ProcessService/Attach": Gate.FREE,
    "ProcessService/SendInput": Gate.CALL,
    "ProcessService/CloseInput": Gate.FREE,
    "ProcessService/Signal": Gate.FREE,
    "ProcessService/Resize": Gate.FREE,
    "ProcessService/List": Gate.FREE,
    "ServiceManagerService/Apply": Gate.CALL,
    "ServiceManagerService/Start": Gate.CALL,
    "ServiceManagerService/Stop": Gate.FREE,
    "ServiceManagerService/Restart": Gate.CALL,
    "ServiceManagerService/List": Gate.FREE,
    "ServiceManagerService/Logs": Gate.FREE,
    "ServiceManagerService/WaitReady": Gate.FREE,
    "FilesystemService/Read": Gate.FREE,
    "FilesystemService/Write": Gate.CALL,
    "FilesystemService/Stat": Gate.FREE,
    "FilesystemService/ListDirectory": Gate.FREE,
    # A folder, a new name or a missing file changes what `import` finds.
    "FilesystemService/MakeDir": Gate.CALL,
    "FilesystemService/Move": Gate.CALL,
    "FilesystemService/Remove": Gate.CALL,
    "FilesystemService/Watch": Gate.FREE,
    "FilesystemService/Archive": Gate.FREE,
    "FilesystemService/Extract": Gate.CALL,
    "FilesystemService/Glob": Gate.FREE,
    "FilesystemService/Search": Gate.FREE,
    "SessionService/Open": Gate.FREE,
    "SessionService/Suspend": Gate.FREE,
    "SessionService/Resume": Gate.FREE,
    "SessionService/Describe": Gate.FREE,
    "SessionService/GetEnvironment": Gate.FREE,
    "SessionService/Health": Gate.FREE,
    "SessionService/Usage": Gate.FREE,
    "SessionService/WatchUsage": Gate.FREE,
    "SessionService/ProbeEgress": Gate.FREE,
    "SessionService/Close": Gate.FREE,
    "PortService/Tunnel": Gate.REFUSED,
    "IdentityService/GetSigningRequest": Gate.FREE,
    "IdentityService/InstallCertificate": Gate.FREE,
    # It serves brokered sandboxes only.
    "ToolBrokerService/Serve": Gate.FREE,
    "ReviewService/ListPending": Gate.FREE,
    "ReviewService/WatchPending": Gate.FREE,
    "ReviewService/Answer": Gate.FREE,
    "JournalService/Head": Gate.FREE,
    "JournalService/Read": Gate.FREE,
    # All belong to the fleet, which has no token for them but for a transfer. A restore changes what a reviewer has
    # looked at; whether its snapshot may come into a reviewed sandbox, the fleet decides by the snapshot's contract.
    "SnapshotService/Save": Gate.FREE,
    "SnapshotService/Unhold": Gate.FREE,
    "SnapshotService/Restore": Gate.COUNTED,
}


def short(method: str) -> str:
    """Return "Service/Method" of "/package.Service/Method"."""
    return method.rpartition(".")[2]


def gate_of(method: str) -> Gate:
    """Of an RPC ("/package.Service/Method")."""
    return METHODS.get(short(method), Gate.REFUSED)
