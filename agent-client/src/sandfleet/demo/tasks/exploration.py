"""(b) Exploratory analysis, in stages, of matplotlib's monthly share prices: raw, with holes and rows without a price.

Variables carry over from stage to stage. With `chaos` the agent's own code ends its interpreter in the middle, and the
agent continues from the file that it saved.
"""

import csv
from itertools import pairwise
from statistics import quantiles

from sandfleet.codeact import RunCode
from sandfleet.codeact.policies.scripted import Move, When, answer_from
from sandfleet.demo.task import Fix, Task, numbers, package_file, repairs
from sandfleet.errors import SandfleetError
from sandfleet.sandbox import AsyncSandbox

TITLE = "exploration"
_TICKERS = ("AAPL", "IBM", "MSFT", "XRX", "AMZN", "GOOGL", "ADBE", "^GSPC", "^IXIC", "DELL")
_PROMPT = (
    "stocks.csv has share prices on the first of each month, as downloaded: it also has rows without any price, and a month may appear "
    "twice (the first one counts). Explore the column {ticker} in stages: load, look at what is missing, clean, compute the monthly returns "
    "(price / price of the month before - 1), find outliers (more than 1.5 interquartile ranges outside of the quartiles; quartiles by linear "
    "interpolation), and save a plot as returns.png. Answer with three values separated by semicolons: how many outliers there are, the month "
    "with the lowest return as YYYY-MM, and that return in percent with 2 decimals."
)
PLOT = "returns.png"
_LARGEST_PLOT = 5 * 1024 * 1024

_FIXES = (Fix("comment", When(error="ParserError"), "the first line is a comment: skip it"),)
_LOOK = """
missing = prices.isna().sum()
empty = int(prices.isna().all(axis=1).sum())
print(prices.shape, "from", prices.index.min().date(), "to", prices.index.max().date())
print("missing:", missing.to_dict())
print("rows without any price:", empty)
"""
_CLEAN = """
prices = prices.dropna(how="all").sort_index()
twice = prices.index.to_period("M").duplicated(keep="first")
print(len(prices), "rows left; months that appear twice:", int(twice.sum()))
"""
_ONCE = """
prices = prices[~twice]
prices.to_csv("clean.csv")
print("clean:", len(prices), "months saved in clean.csv")
"""
_SAVE = _ONCE.replace("prices = prices[~twice]\n", "")
_RETURNS = """
price = prices[{ticker!r}].dropna()
returns = price.pct_change().dropna()
low, high = returns.quantile([0.25, 0.75])
outliers = returns[(returns < low - 1.5 * (high - low)) | (returns > high + 1.5 * (high - low))]
worst = returns.idxmin()
print(returns.describe().round(4).to_dict())
print(f"{{len(outliers)}} outliers, worst {{worst:%Y-%m}}, {{100 * returns.min():.2f}} %")
"""
_PLOT = """
import matplotlib.pyplot as plt
figure, (upper, lower) = plt.subplots(2, 1, sharex=True, figsize=(8, 5))
upper.semilogy(price.index, price)
upper.set_title({ticker!r})
lower.bar(returns.index, 100 * returns, width=25)
lower.plot(outliers.index, 100 * outliers, "o", color="tab:red")
lower.set_ylabel("monthly return, %")
figure.savefig("returns.png", dpi=80)
plt.close(figure)
print(f"saved: {{len(outliers)}} outliers, worst {{worst:%Y-%m}}, {{100 * returns.min():.2f}} %")
"""
_RELOAD = 'import pandas as pd\nprices = pd.read_csv("clean.csv", index_col="Date", parse_dates=True)\nprint("clean:", len(prices), "months read")'
# Cells without a pause between them have no copy each: a rollback may undo some of them as well.
_GO_ON = """
assert len(prices) == len(open("clean.csv").readlines()) - 1, "the rollback went further back"
print("clean:", len(prices), "months are still there")
"""
_CHAOS = 'import os\nprint("this interpreter ends now", flush=True)\nos._exit(7)'


def make(seed: int, *, chaos: bool = False) -> Task:
    """Another share for each seed."""
    ticker = _TICKERS[seed % len(_TICKERS)]
    data = package_file("matplotlib", "mpl-data/sample_data/Stocks.csv")
    returns = RunCode(_RETURNS.format(ticker=ticker), intent=f"returns and outliers of {ticker}")
    accident = (
        (Move(When(text="clean: .* saved"), RunCode(_CHAOS, intent="chaos: end my own interpreter")),) if chaos else ()
    )
    script = (
        Move(When(first=True), RunCode(_load(frozenset()), intent="load it")),
        *repairs(_FIXES, _load),
        Move(When(text="rows without any price: [1-9]"), RunCode(_CLEAN, intent="drop the rows without any price")),
        Move(When(text="appear twice: [1-9]"), RunCode(_ONCE, intent="keep each month once, and save")),
        Move(When(text="appear twice: 0|without any price: 0"), RunCode(_SAVE, intent="nothing to drop: save")),
        *accident,
        # An agent that lost the variables still has the file.
        Move(When(lost="variables"), RunCode(_RELOAD, intent="my variables are gone: read clean.csv again"), times=3),
        # After a rollback they still exist, or an older state of them does.
        Move(When(lost="processes"), RunCode(_GO_ON, intent="rolled back: all is there, go on")),
        *(
            Move(When(error=error), RunCode(_RELOAD, intent="it undid more than one cell: read clean.csv again"))
            for error in ("NameError", "AssertionError")
        ),
        Move(When(text="clean: .* months"), returns, times=3),
        Move(When(text=r"(?m)^\d+ outliers"), RunCode(_PLOT.format(ticker=ticker), intent="plot it"), times=3),
        Move(
            When(text="saved: "),
            answer_from(r"saved: (\d+) outliers, worst (\S+), (\S+) %", "outliers, worst month, its return"),
        ),
    )

    async def verify(values: tuple[str, ...], sandbox: AsyncSandbox) -> str:
        return _wrong(values, data, ticker) or await _plot_trouble(sandbox)

    title = f"{ticker}, with an accident" if chaos else ticker
    return Task(title, _PROMPT.format(ticker=ticker), script, verify, {"stocks.csv": data}, keep=(PLOT,))


def _load(seen: frozenset[str]) -> str:
    option = ', comment="#"' if "comment" in seen else ""
    return f'import pandas as pd\nprices = pd.read_csv("stocks.csv", index_col=0, parse_dates=True{option})' + _LOOK


def _wrong(values: tuple[str, ...], data: bytes, ticker: str) -> str:
    count, month, percent = summary(data, ticker)
    parts = [part.strip() for value in values for part in value.split(";")]
    if len(parts) == 3 and numbers((parts[0],)) == (count,) and month in parts[1]:
        got = numbers((parts[2],))
        if len(got) == 1 and abs(got[0] - percent) < 0.0051:
            return ""
    return f"expected {count}; {month}; {percent:.2f}, got {'; '.join(parts)}"


def summary(data: bytes, ticker: str) -> tuple[int, str, float]:
    """Outliers, worst month and its return in percent, on the host and without pandas."""
    lines = (line for line in data.decode().splitlines() if not line.startswith("#"))
    first: dict[str, float] = {}
    for row in csv.DictReader(lines):
        if row[ticker]:
            first.setdefault(row["Date"][:7], float(row[ticker]))
    returns = {month: now / before - 1 for (_, before), (month, now) in pairwise(sorted(first.items()))}
    low, _, high = quantiles(returns.values(), n=4, method="inclusive")
    reach = 1.5 * (high - low)
    worst = min(returns, key=lambda month: returns[month])
    return sum(not low - reach <= value <= high + reach for value in returns.values()), worst, 100 * returns[worst]


async def _plot_trouble(sandbox: AsyncSandbox) -> str:
    try:
        plot = await sandbox.files.read(PLOT, format="bytes", limit=_LARGEST_PLOT)
    except SandfleetError as error:
        return f"no plot: {error}"
    whole = (
        plot.startswith(b"\x89PNG\r\n\x1a\n")
        and plot.endswith(b"IEND\xaeB`\x82")
        and int.from_bytes(plot[16:20], "big") > 100
    )
    return "" if whole else f"{PLOT} of {len(plot):,} bytes is no whole PNG"
