"""IPython's shell without a terminal, a history, a profile, colours or threads."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from IPython.core.autocall import ExitAutocall
from IPython.core.formatters import BaseFormatter, DisplayFormatter
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.text import SList
from traitlets import ObjectName, Unicode
from traitlets.config import Config

from ..base import parts
from ..packages import pip
from . import errors, system
from .shown import charts, display, rows

# Types that IPython shows with repr(), unless code registers another printer for them.
SIMPLE = (bool, bytes, complex, float, int, str)


class Exit(ExitAutocall):
    """`exit`, `exit()` and `exit(3)` raise SystemExit as they do in a script."""

    rewrite = False

    def __call__(self, code: object = None) -> None:
        raise SystemExit(*(() if code is None else (code,)))


class ChartFormatter(BaseFormatter):
    """What a figure shows, as data."""

    format_type = Unicode(charts.CHART)
    # No method of the user's objects has this name.
    print_method = ObjectName("_sandfleet_chart_")
    _return_type = dict

    def pop(self, typ: Any, default: Any = None) -> Any:
        """Keep all: Matplotlib's backend takes its figures from each formatter before it sets its own."""
        del typ
        return default


class Formatter(DisplayFormatter):
    """Shows a value whose representation fails as such, instead of an error."""

    failures: list[BaseException] | None = None
    # The caller of the cell wants so many rows of a frame.
    rows = 0

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        printers = self.formatters[parts.PLAIN].type_printers
        self._simple = {kind: printers.get(kind) for kind in SIMPLE}
        chart = ChartFormatter(parent=self)
        chart.for_type_by_name("matplotlib.figure", "Figure", charts.describe)
        self.formatters[charts.CHART] = chart
        for module in charts.ALTAIR:
            self.mimebundle_formatter.for_type_by_name(module, "TopLevelMixin", charts.with_data)

    def format(self, obj: Any, include: Any = None, exclude: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """The MIME bundle and its metadata."""
        if self._is_simple(obj) and include is exclude is None:
            return {parts.PLAIN: repr(obj)}, {}
        outer, self.failures = self.failures, []
        try:
            bundle, metadata = super().format(obj, include, exclude)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 a __repr__ may raise SystemExit or worse
            self.failures.append(error)
            bundle, metadata = {}, {}
        finally:
            failures, self.failures = self.failures, outer
        if failures and not bundle.get(parts.PLAIN):
            bundle[parts.PLAIN] = _unshowable(obj, failures.pop())
        for failure in failures:
            print(_unshowable(obj, failure), file=sys.stderr)
        if found := rows.described(obj, self.rows):
            bundle[rows.MIME] = found
        return bundle, metadata

    def _is_simple(self, value: Any) -> bool:
        """Whether repr() alone shows the value: the common case, without asking a dozen formatters."""
        kind = type(value)
        if kind not in SIMPLE:
            return False
        plain = self.formatters[parts.PLAIN]
        if plain.type_printers.get(kind) is not self._simple[kind] or plain.float_format != "%r":
            return False
        return not any(kind in each.type_printers for mime, each in self.formatters.items() if mime != parts.PLAIN)


class Shell(InteractiveShell):
    """One per context, made before the fork: it must not touch the process or its files."""

    display_pub_class = display.Publisher
    displayhook_class = display.Hook

    def __init__(self) -> None:
        config = Config()
        config.HistoryManager.enabled = False
        config.HistoryManager.hist_file = ":memory:"
        super().__init__(config=config, user_module=ModuleType("__main__"), cache_size=0, colors="nocolor")
        self._shown: BaseException | None = None
        self._own_callbacks: list[object] = []
        self.publish: display.Publish = _publish_nothing
        self.clear: Callable[..., None] = _clear_nothing
        # Instead of a database in the profile's folder: %cd keeps its history here.
        self.db: dict[str, Any] = {}
        self.user_ns.pop("open", None)
        self.set_hook("show_in_pager", _show_page, 0)
        self.register_magic_function(self._pip, "line", "pip")
        for name in ("bash", "sh"):
            self.register_magic_function(self._script_magic(name), "cell", name)

    # Switched off: what IPython does to the process or to the home folder.
    def init_ipython_dir(self, ipython_dir: object) -> None: ...
    def init_profile_dir(self, profile_dir: object) -> None: ...
    def init_virtualenv(self) -> None: ...
    def init_completer(self) -> None: ...
    def init_sys_modules(self) -> None: ...
    def init_prompts(self) -> None: ...

    def _exiter_default(self) -> Exit:
        return Exit(self)

    def init_display_formatter(self) -> None:
        self.display_formatter = Formatter(parent=self)
        self.configurables.append(self.display_formatter)

    def become_singleton(self) -> None:
        """Makes it what `get_ipython` finds."""
        for each in type(self)._walk_mro():  # noqa: SLF001 how traitlets makes an instance the singleton
            each._instance = self  # noqa: SLF001

    def adopt_callbacks(self) -> None:
        """Remembers what runs after a cell before any code has registered more."""
        self._own_callbacks = self._callbacks()

    def has_new_callbacks(self) -> bool:
        """Whether code has registered something that runs after a cell."""
        return self._callbacks() != self._own_callbacks

    def _callbacks(self) -> list[object]:
        return [*self.events.callbacks["post_execute"], *self.events.callbacks["post_run_cell"]]

    def show_value(self, value: Any, *, main: bool = False) -> None:
        """Publishes a value, unless it displays itself."""
        bundle, _ = self.display_formatter.format(value)
        if bundle:
            self.publish(display.Shown(bundle, main))

    @contextlib.contextmanager
    def _tee(self, channel: str) -> Iterator[None]:
        """Does nothing: IPython would keep all output of a nested cell in memory."""
        del channel
        yield

    def system(self, cmd: str) -> None:
        """`!cmd`."""
        argv = [system.find_shell(), "-c", self.var_expand(cmd, depth=1)]
        self.user_ns["_exit_code"] = system.run(argv, capture=self._captures())

    system_piped = system
    system_raw = system

    def getoutput(self, cmd: str, split: bool = True, depth: int = 0) -> Any:
        """`x = !cmd`."""
        text, code = system.output_of([system.find_shell(), "-c", self.var_expand(cmd, depth=depth + 1)])
        self.user_ns["_exit_code"] = code
        return SList(text.splitlines()) if split else text

    def showtraceback(self, exc_tuple: Any = None, *args: Any, **kwargs: Any) -> None:
        """Takes errors that IPython itself catches: in nested cells, formatters, extensions."""
        del args, kwargs
        error = exc_tuple[1] if exc_tuple else sys.exc_info()[1]
        if error is None:
            return
        if self.display_formatter.failures is not None:
            self.display_formatter.failures.append(error)
        elif self._shown is None:
            self._shown = error
        else:
            print(errors.print_error(error), end="", file=sys.stderr)

    def take_shown(self) -> BaseException | None:
        """The first error since the last call that IPython would only have shown (%run, %%time, %%capture)."""
        error, self._shown = self._shown, None
        return error

    showsyntaxerror = showtraceback
    showindentationerror = showtraceback

    def enable_gui(self, gui: object = None) -> None:
        """Does nothing: figures need no display."""

    def _captures(self) -> bool:
        """Whether code has replaced sys.stdout (redirect_stdout, %%capture)."""
        return sys.stdout is not sys.__stdout__

    def _pip(self, line: str) -> None:
        """Install packages into the workspace: %pip install NAME."""
        pip.run(self.var_expand(line), lambda argv, env: system.run(argv, capture=self._captures(), env=env))

    def _script_magic(self, name: str) -> Callable[[str, str], None]:
        def run(line: str, cell: str) -> None:
            argv = [name, *line.split()]
            code = system.run(argv, cell.encode("utf-8", "surrogateescape"), capture=self._captures())
            self.user_ns["_exit_code"] = code
            if code != 0:
                raise ScriptFailed(f"cannot finish the cell: {name} ended with exit code {code}")

        run.__doc__ = f"Run the cell with {name}."
        return run


def _publish_nothing(shown: display.Shown) -> None:
    """Stands in until a context takes the shell over."""
    del shown


def _clear_nothing(*, wait: bool) -> None:
    """The same."""
    del wait


class ScriptFailed(RuntimeError):
    """A %%bash or %%sh cell ended with an exit code other than 0."""

    __module__ = "builtins"


def _unshowable(value: object, error: BaseException) -> str:
    reason = errors.cut(errors.value_of(error), 1024)
    return f"<{type(value).__name__} object, cannot show it: {type(error).__name__}: {reason}>"


def _show_page(shell: "Shell", data: Any, start: int = 0, screen_lines: int = 0) -> None:
    """Shows help, as of `len?`, as a result."""
    del screen_lines
    bundle = data if isinstance(data, dict) else {parts.PLAIN: str(data)}
    shell.publish(display.Shown({**bundle, parts.PAGE: {"start": start}}))
