"""`sandfleet completion SHELL`: print what makes a shell complete commands, options and ids of sandboxes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import suppress

from sandfleet.cli import OK, in_full, parser_for
from sandfleet.errors import SandfleetError

SHELLS = {
    "bash": """\
# eval "$(sandfleet completion bash)" in ~/.bashrc
_sandfleet() {
    local IFS=$'\\n'
    COMPREPLY=($(compgen -W "$(sandfleet completion --words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)" \\
        -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _sandfleet sandfleet
""",
    "zsh": """\
# eval "$(sandfleet completion zsh)" in ~/.zshrc, after compinit
_sandfleet() {
    local -a found
    found=("${(@f)$(sandfleet completion --words "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "$found" ]]; then compadd -a found; else _files; fi
}
compdef _sandfleet sandfleet
""",
    "fish": """\
# sandfleet completion fish > ~/.config/fish/completions/sandfleet.fish
complete -c sandfleet -a '(sandfleet completion --words (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
""",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish")
    parser.add_argument("--json", action="store_true", help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Print the script."""
    print(SHELLS[options.shell], end="")
    return OK


def complete(words: Sequence[str]) -> int:
    """Print, one a line, what the last of the words may become."""
    *before, begun = words or [""]
    found = _candidates(before, begun)
    print("\n".join(sorted(word for word in found if word.startswith(begun))))
    return OK


def _candidates(before: Sequence[str], begun: str) -> list[str]:
    before = in_full(list(before))
    parser, given = parser_for(before), before
    for word in before:
        if (chosen := _commands(parser).get(word)) is not None:
            parser, given = chosen, given[given.index(word) + 1 :]
    if "--" in given:
        return []
    options = {name: action for action in parser._actions for name in action.option_strings}  # noqa: SLF001  there is no public way
    valued = options.get(given[-1]) if given else None
    if valued is not None and valued.nargs != 0:
        return [str(choice) for choice in valued.choices or ()]
    if begun.startswith("-"):
        return [name for name, action in options.items() if action.help != argparse.SUPPRESS]
    if commands := _commands(parser):
        return list(commands)
    positional = next((action for action in parser._actions if not action.option_strings), None)  # noqa: SLF001
    if positional is None:
        return []
    return (
        _ids() if positional.dest in ("sandbox", "sandboxes") else [str(choice) for choice in positional.choices or ()]
    )


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:  # noqa: SLF001  there is no public way
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            return dict(action.choices)
    return {}


def _ids() -> list[str]:
    from sandfleet import Sandbox

    with suppress(SandfleetError, OSError):
        return [info.sandbox_id for info in Sandbox.list()]
    return []
