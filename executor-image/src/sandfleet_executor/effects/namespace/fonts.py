"""Matplotlib's list of fonts, from the image or from this user's cache, for the sessions of this machine."""

import json
import os
import sys
from functools import cache
from pathlib import Path

from sandfleet_executor.core.session.bwrap import MATPLOTLIB, Data

# The image's build makes the first one.
FOLDERS = (f"{sys.prefix}/share/matplotlib", "{cache}/matplotlib")
MOST_BYTES = 4 << 20


@cache
def fonts() -> Data | None:
    """The newest list there is, without the fonts that no session sees; None if there is none."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    for folder in FOLDERS:
        try:
            newest = max(Path(folder.format(cache=home)).glob("fontlist-*.json"), key=lambda path: path.stat().st_mtime)
            if newest.stat().st_size <= MOST_BYTES:
                return Data(f"{MATPLOTLIB}/{newest.name}", visible(newest.read_text(), sys.prefix))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # Matplotlib makes its own in the session.
    return None


def visible(text: str, prefix: str) -> str:
    """The list without fonts that lie elsewhere than in the system and the interpreter, such as those of a home.

    >>> visible('{"ttflist": [{"fname": "fonts/ttf/cmr10.ttf"}, {"fname": "/home/ann/a.ttf"}], "afmlist": []}', "/venv")
    '{"ttflist": [{"fname": "fonts/ttf/cmr10.ttf"}], "afmlist": []}'
    """
    listed = json.loads(text)
    for kind in ("ttflist", "afmlist"):
        # Matplotlib's own fonts have paths relative to its data.
        listed[kind] = [
            font
            for font in listed[kind]
            if not font["fname"].startswith("/") or font["fname"].startswith(("/usr/", f"{prefix}/"))
        ]
    return json.dumps(listed)
