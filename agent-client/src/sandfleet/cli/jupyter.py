"""`sandfleet jupyter install|remove`: make a kernel known to Jupyter whose code runs in a sandbox."""

from __future__ import annotations

import argparse
import asyncio
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

from sandfleet.cli import FAILED, OK, USAGE, create, refuse, sentence, what
from sandfleet.cli.run import Languages
from sandfleet.jupyter import kernelspec, notebook

_TITLES = {"python": "Python", "bash": "Bash", "javascript": "JavaScript", "sql": "SQL", "typescript": "TypeScript"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    install = _action(actions, "install", "make a kernel known to Jupyter whose code runs in a sandbox")
    _place(install)
    install.add_argument("--display-name", default="", metavar="TEXT", help="how Jupyter shows it")
    _language(install)
    _folder(install)
    create.add_claim_arguments(install, install)
    remove = _action(actions, "remove", "remove such a kernel")
    _place(remove)
    _language(remove)
    kernel = _action(actions, "kernel", "be the kernel of a connection file: Jupyter starts this")
    kernel.add_argument("--file", type=Path, required=True, metavar="FILE", help="connection file of Jupyter")
    _language(kernel)
    _folder(kernel)
    create.add_claim_arguments(kernel, kernel)


def _folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--folder",
        type=Path,
        metavar="DIR",
        help="copy this folder into each new sandbox; one that is relative, as '.', begins at the notebook's folder",
    )


def _action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser], name: str, summary: str
) -> argparse.ArgumentParser:
    return actions.add_parser(name, help=summary, description=sentence(summary))


def _language(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--language",
        choices=Languages(),
        default="python",
        metavar="NAME",
        help=f"{', '.join(notebook.LANGUAGES)}, or {notebook.KERNEL}NAME (default: python)",
    )


def _place(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name", default="", metavar="NAME", help="name of the kernel (default: sandfleet-LANGUAGE)")
    parser.add_argument("--prefix", metavar="DIR", help="install below this folder (default: for this user alone)")
    parser.add_argument(
        "--sys-prefix", dest="prefix", action="store_const", const=sys.prefix, help="install in this environment"
    )


def run(options: argparse.Namespace) -> int:
    """Run one of the actions."""
    return {"install": _install, "remove": _remove, "kernel": _kernel}[options.action](options)


def _install(options: argparse.Namespace) -> int:
    name = options.name or f"sandfleet-{options.language}"
    if not kernelspec.NAME.fullmatch(name):
        refuse(f"cannot install a kernel {name!r}: a name has only a-z, 0-9, '.', '_' and '-'", as_json=False)
        return USAGE
    if find_spec("jupyter_client") is None:
        refuse("cannot install a kernel: jupyter_client is missing: pip install 'sandfleet[jupyter]'", as_json=False)
        return USAGE
    title = _TITLES.get(options.language, options.language.removeprefix(notebook.KERNEL))
    spec = kernelspec.made(options.language, options.display_name or f"{title} (sandbox)", _words(options))
    place = kernelspec.folder(options.prefix, name)
    try:
        kernelspec.write(place, spec)
    except OSError as error:
        refuse(f"cannot write {place}: {what(error)}", error, as_json=False)
        return FAILED
    print(f"{name}: {place}")
    print(
        f"jupyter lab, or: jupyter nbconvert --execute --to notebook --ExecutePreprocessor.kernel_name={shlex.quote(name)} FILE"
    )
    return OK


def _words(options: argparse.Namespace) -> list[str]:
    """Return the arguments of the kernel that say which sandbox it claims."""
    return (["--folder", str(options.folder)] if options.folder else []) + create.claim_words(options)


def _remove(options: argparse.Namespace) -> int:
    name = options.name or f"sandfleet-{options.language}"
    place = kernelspec.folder(options.prefix, name)
    if kernelspec.NAME.fullmatch(name) and kernelspec.remove(place):
        return OK
    refuse(f"cannot remove {place}: no kernel of Sandfleet is there", as_json=False)
    return FAILED


def _kernel(options: argparse.Namespace) -> int:
    """Serve until Jupyter shuts the kernel down."""
    if find_spec("jupyter_client") is None:
        refuse("cannot be a kernel: jupyter_client is missing: pip install 'sandfleet[jupyter]'", as_json=False)
        return USAGE
    try:
        asyncio.run(_serve(options))
    except (OSError, ValueError, KeyError, TypeError) as error:
        refuse(f"cannot use {options.file} as a connection file: {what(error)}", error, as_json=False)
        return USAGE
    return OK


async def _serve(options: argparse.Namespace) -> None:
    from sandfleet.jupyter.kernel import Kernel
    from sandfleet.jupyter.seat import LEASE, Seat
    from sandfleet.jupyter.wire import Wire

    def claim() -> str:
        with create.kept(options, LEASE, envs=dict(options.env)) as sandbox:
            return sandbox.sandbox_id

    # Jupyter starts a kernel anew with the same file.
    record = options.file.with_name(f"{options.file.name}.sandbox")
    await Kernel(Wire(options.file), Seat(claim, record, options.folder), options.language).serve()
