"""Results of cells: what IPython displays."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher


class Shown(NamedTuple):
    """A result: the representations by their MIME types."""

    bundle: Mapping[str, Any]
    # Whether it is the value of the cell's last expression.
    main: bool = False
    # By which later results replace it; empty: none do.
    display_id: str = ""
    # Whether it replaces what was shown under its id.
    update: bool = False


Publish = Callable[[Shown], None]


class Publisher(DisplayPublisher):
    """Takes what display() and libraries publish."""

    def publish(
        self, data: Any, metadata: Any = None, *args: Any, transient: Any = None, update: bool = False, **kwargs: Any
    ) -> None:
        """Publishes a result, or an update of one with the same display id."""
        del args, kwargs
        self._validate_data(data, metadata)
        display_id = transient.get("display_id") if isinstance(transient, Mapping) else None
        self.shell.publish(Shown(data, display_id="" if display_id is None else str(display_id), update=bool(update)))

    def clear_output(self, wait: bool = False) -> None:
        """Clears what the cell has shown and printed; with `wait` when the next output comes."""
        self.shell.clear(wait=bool(wait))


class Hook(DisplayHook):
    """sys.displayhook, for code that calls it and for cells inside cells (%%capture, %run)."""

    def __call__(self, result: Any = None) -> None:
        if result is None:
            return
        self.fill_exec_result(result)
        self.shell.show_value(result)
