"""`sandfleet run FILE|-|-c CODE [-- ARGS]`: run code in a new sandbox, or in an existing one, and show its output."""

from __future__ import annotations

import argparse
import io
import json
import sys
import tokenize
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from getpass import getpass
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from sandfleet import Sandbox
from sandfleet.cli import FAILED, INTERRUPTED, OK, PLATFORM, USAGE, create, end_at_sigterm, print_json, refuse, what
from sandfleet.cli.terminal import interrupts, output
from sandfleet.jupyter import notebook
from sandfleet.values import _show
from sandfleet.values.execution import Blame, Cleared, CommandResult, Execution, InputRequest, Outcome, Result

T = TypeVar("T")

_SCRIPT = "/tmp/sandfleet-run"  # noqa: S108  in the sandbox, where /tmp is its own
_SUFFIXES = {
    ".sh": "bash",
    ".bash": "bash",
    ".js": "javascript",
    ".mjs": "javascript",
    ".cjs": "javascript",
    ".sql": "sql",
    ".ts": "typescript",
    ".mts": "typescript",
    ".r": "jupyter-ir",
    ".R": "jupyter-ir",
}
# By the program of the #! line.
_PROGRAMS = {"bash": "bash", "sh": "bash", "node": "javascript", "Rscript": "jupyter-ir"}
_PICTURES = {"image/png": "png", "image/jpeg": "jpg", "image/svg+xml": "svg"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("file", metavar="FILE", nargs="?", help="file to run; - is standard input")
    parser.add_argument("words", metavar="-- ARGS", nargs="*", help="arguments of the code, after --")
    parser.add_argument("-c", "--code", metavar="CODE", help="run this code instead of a file")
    parser.add_argument(
        "--language",
        choices=Languages(),
        metavar="NAME",
        help=f"{', '.join(notebook.LANGUAGES)}, or {notebook.KERNEL}NAME for a Jupyter kernel of the sandbox"
        " (default: by the file's suffix or #! line, else python)",
    )
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="deadline of the run")
    parser.add_argument("--keep", action="store_true", help="keep the sandbox for an hour, and say its id")
    parser.add_argument(
        "--upload", type=Path, metavar="DIR", help="first copy the contents of this directory to /workspace"
    )
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="save plots, and files that the run created or changed, here"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--sandbox", metavar="ID", help="run in this sandbox and keep it; NAMESPACE/NAME is a CodeSandbox of a cluster"
    )
    create.add_claim_arguments(parser, where)
    output.add_argument(parser)
    parser.add_argument("--json", action="store_true", help="print only one JSON object, at the end")


class Languages:
    """The names of those that may be asked for: `--language` completes the known ones."""

    def __iter__(self) -> Iterator[str]:
        return iter((*notebook.LANGUAGES, notebook.KERNEL))

    def __contains__(self, name: str) -> bool:
        return name in notebook.LANGUAGES or name.startswith(notebook.KERNEL)


def run(options: argparse.Namespace) -> int:
    """Run the code; return its own exit code, 2 if it cannot be read, 3 if the platform failed."""
    options.arguments = [*options.words, *options.behind]
    if (options.file is None) == (options.code is None):
        refuse("cannot run: give either a FILE (- is standard input) or -c CODE", as_json=options.json)
        return USAGE
    try:
        code = _read(options)
        pages = notebook.read(code) if (options.file or "").endswith(".ipynb") else None
    except (OSError, UnicodeDecodeError, SyntaxError, notebook.NotebookError) as error:
        refuse(f"cannot run {options.file}: {what(error)}", error, as_json=options.json)
        return USAGE
    if pages is not None and not list(notebook.cells(pages)):
        refuse(f"cannot run {options.file}: it has no cells of code", as_json=options.json)
        return USAGE
    if options.sandbox and options.mount:
        refuse("cannot mount folders in a sandbox that exists: give --mount where it is created", as_json=options.json)
        return USAGE
    if options.sandbox and (options.queue or options.priority):
        refuse(create.NO_QUEUE, as_json=options.json)
        return USAGE
    if options.upload and not options.upload.is_dir():
        refuse(f"cannot upload {options.upload}: it is not a directory", as_json=options.json)
        return USAGE
    end_at_sigterm()
    with output.opened(options) as options.outputs:
        with _open(options) as sandbox:
            ended = _run_in(sandbox, code, pages, options)
        if options.json:
            print_json(ended)
        else:
            _explain(ended, options)
    return _exit_code(ended)


def _read(options: argparse.Namespace) -> str:
    if options.code is not None:
        return str(options.code)
    if options.file == "-":
        return sys.stdin.read()
    data = Path(options.file).read_bytes()
    # As Python reads a file: by its byte order mark, or the coding line of its first two lines.
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    return io.TextIOWrapper(io.BytesIO(data), encoding).read()


def _language(name: str, code: str) -> str:
    if known := _SUFFIXES.get(Path(name).suffix):
        return known
    first = code.partition("\n")[0]
    program = first.split()[-1].rpartition("/")[2] if first.startswith("#!") else ""
    return _PROGRAMS.get(program, "python")


@contextmanager
def _open(options: argparse.Namespace) -> Iterator[Sandbox]:
    if options.sandbox:
        opened = Sandbox.connect(options.sandbox)
    elif options.keep:
        opened = create.kept(options, create.DEFAULT_KEEP)
        print(create.hint(opened.sandbox_id, create.DEFAULT_KEEP), file=sys.stderr)
    else:
        opened = create.claim(options)
    with opened as sandbox:
        yield sandbox


def _run_in(
    sandbox: Sandbox, code: str, pages: dict[str, Any] | None, options: argparse.Namespace
) -> Execution | CommandResult:
    """Run it between what goes in and what comes out."""
    if options.upload:
        sandbox.files.upload(options.upload, ".")
    ended = _run_code(sandbox, code, options) if pages is None else _run_notebook(sandbox, pages, options)
    if options.output:
        _save(sandbox, ended, options.output)
    return ended


def _run_code(sandbox: Sandbox, code: str, options: argparse.Namespace) -> Execution | CommandResult:
    language = options.language or _language(options.file or "", code)
    if language.startswith(notebook.KERNEL):
        return _run_cell(sandbox, code, options, language)
    return _RUNNERS[language](sandbox, code, options)


def _run_notebook(sandbox: Sandbox, pages: dict[str, Any], options: argparse.Namespace) -> Execution:
    """Run its cells up to the first one that fails, and write back what they have shown."""
    ended: Execution | None = None
    try:
        for number, (cell, code, language) in enumerate(notebook.cells(pages), 1):
            outputs = notebook.Outputs(number)
            ended = _run_cell(sandbox, code, options, options.language or language, outputs)
            cell["execution_count"], cell["outputs"] = number, outputs.finished(ended)
            if not ended.ok:
                break
    finally:
        notebook.save(Path(options.file), pages)
    assert ended is not None
    return ended


def _run_python(sandbox: Sandbox, code: str, options: argparse.Namespace) -> Execution:
    name = "-c" if options.code is not None else options.file
    lines = [f"__import__('sys').argv[:] = {[name, *options.arguments]!r}"] if options.arguments else []
    # A reviewer approves the code alone.
    is_reviewed = sandbox._async._link.is_reviewed  # noqa: SLF001 - known since the claim
    if options.file not in {None, "-"} and not is_reviewed:
        lines = [f"__import__('sys').argv[:] = {[name, *options.arguments]!r}", _placed(sandbox, code, options)]
    if lines:
        sandbox.run_code("\n".join(lines)).raise_for_error()
    return _run_cell(sandbox, code, options, "python")


def _placed(sandbox: Sandbox, code: str, options: argparse.Namespace) -> str:
    """Write the script where programs look for it beside uploaded files; return the line that sets `__file__`."""
    path = PurePosixPath(options.file)
    place = str(path.name if path.is_absolute() or ".." in path.parts else path)
    is_new = not (options.sandbox or options.upload)
    if is_new or not sandbox.files.exists(place):
        sandbox.files.write(place, code)
    return f"__file__ = __import__('os').path.abspath({place!r})"


def _typed(options: argparse.Namespace, request: InputRequest) -> str | None:
    """Give the code a line of this program's own input; None at its end."""
    if request.password and sys.stdin.isatty():
        return getpass(request.prompt)
    if not options.json:
        print(request.prompt, end="", flush=True)
    return sys.stdin.readline() or None


def _run_javascript(sandbox: Sandbox, code: str, options: argparse.Namespace, *, language: str) -> Execution:
    if options.arguments:
        sandbox.run_code(f"process.argv.push(...{json.dumps(options.arguments)})", language=language)
    return _run_cell(sandbox, code, options, language)


def _run_sql(sandbox: Sandbox, code: str, options: argparse.Namespace) -> Execution:
    if options.arguments:
        quoted = ", ".join("'" + each.replace("'", "''") + "'" for each in options.arguments)
        sandbox.run_code(f"SET VARIABLE arguments = [{quoted}]", language="sql").raise_for_error()
    return _run_cell(sandbox, code, options, "sql")


def _run_cell(
    sandbox: Sandbox,
    code: str,
    options: argparse.Namespace,
    language: str,
    outputs: notebook.Outputs | None = None,
) -> Execution:
    """Run one cell. `outputs` keeps what it shows."""
    shown = not options.json
    context = "default" if language == "python" else f"default-{language}"
    clears = _clear if shown and sys.stdout.isatty() else None
    with interrupts.passed_to(lambda: sandbox.interrupt(context)):
        return sandbox.run_code(
            code,
            language=language,
            timeout=options.timeout,
            envs=dict(options.env),
            on_stdout=_both(options.outputs.stdout.text if shown else None, outputs.stdout if outputs else None),
            on_stderr=_both(options.outputs.stderr.text if shown else None, outputs.stderr if outputs else None),
            on_result=_both(partial(_show_result, options) if shown else None, outputs.result if outputs else None),
            on_clear=_both(clears, outputs.clear if outputs else None),
            on_input=None if options.file == "-" else partial(_typed, options),
        )


def _both(one: Callable[[T], None] | None, other: Callable[[T], None] | None) -> Callable[[T], None] | None:
    if one is None or other is None:
        return one or other

    def tell(said: T) -> None:
        one(said)
        other(said)

    return tell


def _run_bash(sandbox: Sandbox, code: str, options: argparse.Namespace) -> CommandResult:
    # As a file, since one argument of a program is at most 128 KiB long.
    sandbox.files.write(_SCRIPT, code)
    handle = sandbox.commands.run(
        ["bash", _SCRIPT, *options.arguments],
        timeout=options.timeout,
        envs=dict(options.env),
        background=True,
    )
    return interrupts.followed(handle, None if options.json else options.outputs)


_RUNNERS: dict[str, Callable[[Sandbox, str, argparse.Namespace], Execution | CommandResult]] = {
    "bash": _run_bash,
    "python": _run_python,
    "javascript": partial(_run_javascript, language="javascript"),
    "typescript": partial(_run_javascript, language="typescript"),
    "sql": _run_sql,
}


def _show_result(options: argparse.Namespace, result: Result) -> None:
    options.outputs.stdout.text(f"{result.text or repr(result)}\n")


def _clear(_: Cleared) -> None:
    """Clear the line, as IPython does in a terminal."""
    print("\x1b[2K\r", end="", flush=True)


def _save(sandbox: Sandbox, ended: Execution | CommandResult, directory: Path) -> None:
    """Copy what the run has shown and made. Names come from the sandbox, so none may lead outside."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, (suffix, data) in enumerate(_pictures(ended), 1):
        (directory / f"plot-{number}.{suffix}").write_bytes(data)
    if not ended.files.complete:
        # Which files changed is not known: the whole workspace has them.
        sandbox.files.download(".", directory)
        return
    for name in (*ended.files.created, *ended.files.modified):
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
            continue
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        sandbox.files.download(name, target)


def _pictures(ended: Execution | CommandResult) -> Iterator[tuple[str, bytes]]:
    for result in ended.results if isinstance(ended, Execution) else ():
        for mime, suffix in _PICTURES.items():
            if (data := result.parts.get(mime)) is not None:
                yield suffix, data.encode() if isinstance(data, str) else data
                break


def _explain(ended: Execution | CommandResult, options: argparse.Namespace) -> None:
    plots = 0 if options.output else len(list(_pictures(ended)))
    if plots:
        print(f"sandfleet: {plots} plot{'s' * (plots > 1)} shown; --output DIR saves them", file=sys.stderr)
    if ended.ok:
        return
    if isinstance(ended, Execution) and ended.error is not None and ended.outcome is not Outcome.INTERRUPTED:
        if ended.error.name != "SystemExit":
            options.outputs.stderr.text(f"{ended.error}\n")
        elif _exit_of(ended.error.value) is None:
            # As Python does with sys.exit("why").
            options.outputs.stderr.text(f"{ended.error.value}\n")
    if ended.outcome is not Outcome.ERROR:
        print(f"sandfleet: {ended.outcome}: {_show.visible(ended.message)}", file=sys.stderr)


def _exit_code(ended: Execution | CommandResult) -> int:
    if ended.blame is Blame.PLATFORM:
        return PLATFORM
    if ended.outcome is Outcome.INTERRUPTED:
        return INTERRUPTED
    if isinstance(ended, Execution) and ended.error is not None and ended.error.name == "SystemExit":
        code = _exit_of(ended.error.value)
        return FAILED if code is None else code
    return ended.exit_code or (OK if ended.ok else FAILED)


def _exit_of(value: str) -> int | None:
    """The exit code of a SystemExit with this text; None for a text that Python prints."""
    if value in ("", "None"):
        return OK
    try:
        return int(value) & 0xFF
    except ValueError:
        return None
