"""What a reviewer is asked about: the exact bytes of a request, and all else that it says."""

import hashlib
from dataclasses import dataclass

# Of one request, and of all that wait together: a person reads it.
MAX_CONTENT_BYTES = 8 << 20
MAX_PENDING_BYTES = 24 << 20
# The kind whose content is a program that an interpreter of the session runs.
CELL = "cell"


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The interpreter that a cell would run in, as its context has it when a reviewer is asked."""

    language: str = ""
    # No other interpreter of the sandbox has had this name. Empty: its variables are not only those of its cells.
    incarnation: str = ""
    # How many cells have begun in it.
    cells: int = 0


@dataclass(frozen=True, slots=True)
class Subject:
    """One request. Its digest covers all but the intent, which is the agent's own word for it."""

    # As "InterpreterService/Execute", and in a word: cell, command, file, …
    method: str
    kind: str
    # What would run or be written.
    content: bytes
    # The rest of the request, as JSON.
    settings: str = "{}"
    context_id: str = ""
    # A file's path, the id of an execution that gets input, …
    name: str = ""
    execution_id: str = ""
    intent: str = ""
    # Whether other content may run in its place.
    editable: bool = False
    # The holder of the token of the call.
    submitter: str = ""
    # Of a cell.
    runs_in: Interpreter | None = None

    @property
    def digest(self) -> bytes:
        """SHA-256. Each part has its length before it, so that no two requests have the same text."""
        found = hashlib.sha256()
        at = self.runs_in or Interpreter()
        for part in (self.method, self.context_id, self.name, self.settings, at.language, at.incarnation):
            data = part.encode("utf-8", "surrogateescape")
            found.update(len(data).to_bytes(8, "big") + data)
        found.update(self.content)
        return found.digest()

    @property
    def size(self) -> int:
        return len(self.content) + len(self.settings)
