"""The frame of a page of HTML that needs nothing else: its style, in light and dark.

Who writes the body escapes the texts in it.
"""

from __future__ import annotations

from html import escape

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --dim: #5b6570; --line: #d8dee4; --paper: #fff; --good: #1a7f37;
  --bad: #cf222e; --none: #9a6700; --bar: #0969da; --wait: #bf8700 }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --dim: #9aa4af; --line: #30363d; --paper: #0d1117;
  --good: #3fb950; --bad: #f85149; --none: #d29922; --bar: #58a6ff; --wait: #d29922 } }
* { box-sizing: border-box } body { margin: 0 auto; max-width: 70rem; padding: 1.5rem 1rem 4rem; color: var(--ink);
  background: var(--paper); font: 16px/1.5 system-ui, sans-serif }
h1 { font-size: 1.5rem; margin: 0 } h2 { font-size: 1.1rem; margin: 2rem 0 .6rem } p, .dim { color: var(--dim) }
.scroll { overflow-x: auto } table { border-collapse: collapse; width: 100%; font-size: .93rem }
th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top }
th { color: var(--dim); font-weight: 600 } .number { text-align: right; font-variant-numeric: tabular-nums }
.answered { color: var(--good) } .failed { color: var(--bad) } .unjudged { color: var(--none) }
.verdict { font-size: 1.15rem; margin: .2rem 0 } details { border-bottom: 1px solid var(--line); padding: .4rem 0 }
summary { cursor: pointer } pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .3rem 0; font-size: .85rem }
svg { width: 100%; height: auto; display: block } svg text { fill: var(--dim); font-size: 11px }
"""


def document(title: str, body: str, style: str = "") -> str:
    """Return the page; `title` is plain text, `style` is added to the common one."""
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    return (
        f"<!doctype html><html lang='en'><head>{head}<style>{_STYLE}{style}</style></head><body>{body}</body></html>\n"
    )
