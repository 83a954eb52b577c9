"""The page: the data as JSON, and a script that draws what is looked at.

Everything in the data may have been written by a model, or by code in a sandbox. The script puts it into the page as
text alone, and the page's policy lets no other script run and loads nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import fields
from html import escape
from importlib.resources import files
from typing import Any

from sandfleet.observe.report.compare import pairs
from sandfleet.observe.report.model import Report


def html(found: Report) -> str:
    """Write the page."""
    assets = files("sandfleet.observe.report")
    style = (assets / "report.css").read_text(encoding="utf-8")
    script = (assets / "report.js").read_text(encoding="utf-8")
    allowed = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:; base-uri 'none'"
    )
    only = found.sessions[0] if len(found.sessions) == 1 and found.other is None else None
    title = (only.task.strip().partition("\n")[0][:120] or only.key) if only else found.name
    name = escape(f"{title} · Sandfleet")
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        f'<meta http-equiv="Content-Security-Policy" content="{allowed}">'
        f"<meta name='viewport' content='width=device-width, initial-scale=1'><title>{name}</title>"
        f"<style>{style}</style></head><body><main id='page'><noscript>This page draws itself with a script, "
        "and this browser runs none.</noscript></main>"
        f"<script type='application/json' id='data'>{_data(found)}</script><script>{script}</script></body></html>\n"
    )


def _data(found: Report) -> str:
    data = _plain(found)
    if found.other is not None:
        data["pairs"] = [
            {"key": pair.key, "flipped": pair.flipped, "differs": pair.differs, "rows": pair.rows}
            | {"before": found.other.sessions.index(pair.before), "after": found.sessions.index(pair.after)}
            for pair in pairs(found.other, found)
        ]
    text = json.dumps(data, default=_plain, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    # No text can end the element that it stands in.
    return text.replace("<", "\\u003c")


def _plain(value: Any) -> dict[str, Any]:
    """Return a value of the model as JSON has it, without a copy of what is in it."""
    return {one.name: getattr(value, one.name) for one in fields(value)}


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
