"""What the journal has of each RPC: the one table. A call that is not in it is recorded by its name."""

from enum import Enum, auto


class Entry(Enum):
    """Where the record of a call comes from."""

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


METHODS = {
    "InterpreterService/CreateContext": Entry.CALL,
    "InterpreterService/ListContexts": Entry.READS,
    "InterpreterService/Execute": Entry.EXECUTION,
    "InterpreterService/Attach": Entry.READS,
    "InterpreterService/Interrupt": Entry.CALL,
    "InterpreterService/AnswerInput": Entry.INPUT,
    "InterpreterService/ForkContext": Entry.CALL,
    "InterpreterService/RestartContext": Entry.CALL,
    "InterpreterService/DeleteContext": Entry.CALL,
    # Both may run code of an object's own properties.
    "InterpreterService/Complete": Entry.CALL,
    "InterpreterService/Inspect": Entry.CALL,
    "InterpreterService/GetTable": Entry.READS,
    "InterpreterService/PutTable": Entry.CALL,
    "InterpreterService/SaveState": Entry.CALL,
    "InterpreterService/RestoreState": Entry.CALL,
    "InterpreterService/ListStates": Entry.READS,
    "InterpreterService/DeleteState": Entry.CALL,
    "ProcessService/Start": Entry.EXECUTION,
    "ProcessService/Attach": Entry.READS,
    "ProcessService/SendInput": Entry.INPUT,
    "ProcessService/CloseInput": Entry.INPUT,
    "ProcessService/Signal": Entry.INPUT,
    "ProcessService/Resize": Entry.INPUT,
    "ProcessService/List": Entry.READS,
    "ServiceManagerService/Apply": Entry.CALL,
    "ServiceManagerService/Start": Entry.CALL,
    "ServiceManagerService/Stop": Entry.CALL,
    "ServiceManagerService/Restart": Entry.CALL,
    "ServiceManagerService/List": Entry.READS,
    "ServiceManagerService/Logs": Entry.READS,
    "ServiceManagerService/WaitReady": Entry.READS,
    "FilesystemService/Read": Entry.READS,
    "FilesystemService/Write": Entry.CALL,
    "FilesystemService/Stat": Entry.READS,
    "FilesystemService/ListDirectory": Entry.READS,
    "FilesystemService/MakeDir": Entry.CALL,
    "FilesystemService/Move": Entry.CALL,
    "FilesystemService/Remove": Entry.CALL,
    "FilesystemService/Watch": Entry.READS,
    "FilesystemService/Archive": Entry.READS,
    "FilesystemService/Extract": Entry.CALL,
    "FilesystemService/Glob": Entry.READS,
    "FilesystemService/Search": Entry.READS,
    "SessionService/Open": Entry.SESSION,
    "SessionService/Suspend": Entry.CALL,
    "SessionService/Resume": Entry.CALL,
    "SessionService/Describe": Entry.READS,
    "SessionService/GetEnvironment": Entry.READS,
    "SessionService/Health": Entry.READS,
    "SessionService/Usage": Entry.READS,
    "SessionService/WatchUsage": Entry.READS,
    "SessionService/ProbeEgress": Entry.READS,
    "SessionService/Close": Entry.SESSION,
    # What a connection carries goes to a service, and is not recorded; that it was opened is.
    "PortService/Tunnel": Entry.CALL,
    "IdentityService/GetSigningRequest": Entry.READS,
    "IdentityService/InstallCertificate": Entry.READS,
    # Each call of a tool has a record.
    "ToolBrokerService/Serve": Entry.SESSION,
    "ReviewService/ListPending": Entry.READS,
    "ReviewService/WatchPending": Entry.READS,
    "ReviewService/Answer": Entry.SESSION,
    "JournalService/Head": Entry.READS,
    "JournalService/Read": Entry.READS,
    "SnapshotService/Save": Entry.READS,
    "SnapshotService/Unhold": Entry.READS,
    # Its record says what came, not which bytes.
    "SnapshotService/Restore": Entry.SESSION,
}


def entry_of(method: str) -> Entry:
    """Of an RPC ("/package.Service/Method")."""
    return METHODS.get(method.rpartition(".")[2], Entry.CALL)
