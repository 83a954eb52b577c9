"""`In` and `Out` of a context, and the names that go with them: `_`, `__`, `___`, `_3`, `_i`, `_ii`, `_iii`."""

from typing import Any

from ..base import process
from .shell import Shell

# `Out` keeps the newest values, and only the last one while the interpreter has more memory than it may. `In` keeps the
# newest sources.
MAX_OUTPUTS = 100
MAX_INPUT_CHARACTERS = 1 << 20
UNDERSCORES = ("_", "__", "___")


class History:
    """Inputs and outputs by the numbers of their cells, in the objects that IPython's magics read as well."""

    def __init__(self, shell: Shell, most_bytes: int = 0) -> None:
        """`most_bytes`: resident memory of the interpreter above which older values are forgotten; 0: no limit."""
        self._shell = shell
        self._most_bytes = most_bytes
        self._number = 0
        self._last = [shell.user_ns.get(name) for name in UNDERSCORES]
        self._inputs: list[str] = shell.history_manager.input_hist_parsed
        self._raw: list[str] = shell.history_manager.input_hist_raw
        self._outputs: dict[int, Any] = shell.history_manager.output_hist
        # The numbers of the inputs that are kept, and their characters.
        self._kept: dict[int, int] = {}

    def begin(self, number: int, source: str) -> None:
        """Cell `number` begins. Numbers may be missing: a killed cell was rolled back."""
        self._number = self._shell.execution_count = number
        before = [self._inputs[-back] if back <= len(self._inputs) else "" for back in (1, 2, 3)]
        self._shell.user_ns.update(zip(("_i", "_ii", "_iii"), before, strict=True))
        for listed in (self._inputs, self._raw):
            # %reset has emptied them.
            listed.extend([""] * (number + 1 - len(listed)))
            listed[number] = source
        self._kept[number] = len(source)
        while sum(self._kept.values()) > MAX_INPUT_CHARACTERS and len(self._kept) > 1:
            oldest = next(iter(self._kept))
            del self._kept[oldest]
            self._inputs[oldest] = self._raw[oldest] = ""

    def keep(self, value: object) -> None:
        """The value of the running cell's last expression."""
        if value is self._outputs:
            # `Out` itself: it would hold itself.
            return
        namespace = self._shell.user_ns
        names = zip(UNDERSCORES, self._last, strict=True)
        # Unless code uses one of the names for something else.
        ours = all(name not in namespace or namespace[name] is last for name, last in names)
        self._last = [value, *self._last[:2]]
        if ours:
            namespace.update(zip(UNDERSCORES, self._last, strict=True))
        self._outputs[self._number] = namespace[f"_{self._number}"] = value
        if self._most_bytes and len(self._outputs) > 1 and process.resident_bytes() > self._most_bytes:
            self._forget(1)
        elif len(self._outputs) > MAX_OUTPUTS:
            self._forget(MAX_OUTPUTS)

    def _forget(self, kept: int) -> None:
        """Forgets all values but the newest."""
        namespace = self._shell.user_ns
        for number in list(self._outputs)[:-kept]:
            value = self._outputs.pop(number)
            if namespace.get(f"_{number}") is value:
                del namespace[f"_{number}"]
        if kept < len(self._last):
            for name, value in zip(UNDERSCORES[kept:], self._last[kept:], strict=True):
                if namespace.get(name) is value:
                    namespace[name] = ""
            self._last[kept:] = [""] * len(self._last[kept:])
