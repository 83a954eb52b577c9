"""The page: the data as JSON, and a script that draws what is looked at.

Everything in the data may have been written by a model, or by code in a sandbox. The script puts it into the page as
text alone, and the page's policy lets no other script run and loads nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import asdict
from html import escape
from importlib.resources import files

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
    name = escape(f"{found.name} · Sandfleet")
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        f'<meta http-equiv="Content-Security-Policy" content="{allowed}">'
        f"<meta name='viewport' content='width=device-width, initial-scale=1'><title>{name}</title>"
        f"<style>{style}</style></head><body><main id='page'><noscript>This page draws itself with a script, "
        "and this browser runs none.</noscript></main>"
        f"<script type='application/json' id='data'>{_data(found)}</script><script>{script}</script></body></html>\n"
    )


def _data(found: Report) -> str:
    data = asdict(found)
    if found.other is not None:
        data["pairs"] = [
            {"key": pair.key, "flipped": pair.flipped, "differs": pair.differs, "rows": pair.rows}
            | {"before": found.other.sessions.index(pair.before), "after": found.sessions.index(pair.after)}
            for pair in pairs(found.other, found)
        ]
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    # No text can end the element that it stands in.
    return text.replace("<", "\\u003c")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
