"""(a) An import of a messy real file that fails, and is patched until its edge cases pass.

Two files, as their packages ship them: matplotlib's share prices with days like 19-Sep-03, the newest first, and
NumPy's reference values of its functions: floats as hexadecimal bit patterns, some without leading zeros, comments.
"""

from collections.abc import Callable
from itertools import islice
from statistics import fmean

from sandfleet.codeact import RunCode
from sandfleet.codeact.policies.scripted import Move, When, answer_from
from sandfleet.demo.task import Fix, Task, check_in_sandbox, numbers, package_file, repairs
from sandfleet.sandbox import AsyncSandbox

TITLE = "messy CSV"
_RULES = "Write importer.py with a function load(path), so that `python3 checks.py` passes. "

_COLUMNS = ("Open", "High", "Low", "Close", "Volume", "Adj. Close*")
_PRICES_PROMPT = (
    "prices.csv has daily share prices. "
    + _RULES
    + "load returns a list of dicts, the oldest day first, with the file's column names as keys; "
    'Date becomes a datetime.date, Volume an int, all others floats. Then answer with the mean of the column "{column}", with 4 decimals.'
)
_PRICES_CHECKS = """
import datetime
def check(load):
    rows = load("prices.csv")
    assert len(rows) == 65, f"65 days, not {len(rows)}"
    days = [row["Date"] for row in rows]
    assert days == sorted(set(days)), "the oldest day has to come first, each day once"
    assert days[0] == datetime.date(2003, 6, 19) and days[-1] == datetime.date(2003, 9, 19), (days[0], days[-1])
    assert all(type(row["Volume"]) is int for row in rows), "Volume has to be whole"
    assert all(row["Low"] <= row["Close"] <= row["High"] for row in rows), "Low <= Close <= High"
    assert rows[-1]["Adj. Close*"] == 29.79
    return rows
"""
_ULPS_PROMPT = (
    "ulps.csv has reference values of a numeric function: floats are written as their bits in hexadecimal, and there are comment lines. "
    + _RULES
    + "load returns a list of tuples (input, output) of floats, for the rows of np.float32 and of np.float64 alike. Then answer with two "
    "numbers separated by a semicolon: how many rows there are, and in how many of them the output is infinite or not a number."
)
_ULPS_CHECKS = """
import math
import struct
def check(load):
    rows = load("ulps.csv")
    assert all(type(value) is float for row in rows for value in row), "floats"
    assert any(math.isinf(v) or math.isnan(v) for row in rows for v in row), "infinities are in the file"
    assert any(0 < abs(v) < 1.1754943508222875e-38 for row in rows for v in row), "denormals are in the file"
    assert not all(is_single(v) for row in rows for v in row if math.isfinite(v)), "doubles are in the file"
    return rows
def is_single(v):
    try:
        return struct.unpack("f", struct.pack("f", v))[0] == v
    except OverflowError:
        return False
"""
_MAIN = 'if __name__ == "__main__":\n    import importer\n    check(importer.load)\n    print("all edge cases pass")\n'
# The cell itself runs the checks, so that a failure comes back as an exception with its name.
_CELL = """
from pathlib import Path
import runpy
Path("importer.py").write_text({source!r})
rows = runpy.run_path("checks.py")["check"](runpy.run_path("importer.py")["load"])
{then}
"""

_PRICES_FIXES = (
    Fix("dates", When(error="ValueError", text="Invalid isoformat"), "read days like 19-Sep-03"),
    Fix("header", When(error="KeyError", text="Adj"), "use the header's own spelling"),
    Fix("order", When(error="AssertionError", text="oldest day"), "sort by day"),
    Fix("whole", When(error="AssertionError", text="whole"), "make the volume an int"),
)
_ULPS_FIXES = (
    Fix("comments", When(error="TypeError", text="NoneType"), "skip the comment lines"),
    Fix("bits", When(error="ValueError", text="0x"), "the numbers are bit patterns: unpack them"),
    Fix("doubles", When(error="OverflowError"), "float64 has twice as many bits"),
)


def make(seed: int, *, chaos: bool = False) -> Task:
    """Prices (another column for each seed) and bit patterns (another function) in turn."""
    del chaos
    return (
        _prices(_COLUMNS[seed // 2 % len(_COLUMNS)])
        if seed % 2 == 0
        else _ulps(("exp", "sin", "log", "cos")[seed // 2 % 4])
    )


def _task(
    title: str, prompt: str, script: tuple[Move, ...], files: dict[str, bytes], expected: tuple[float, ...]
) -> Task:
    checks = files["checks.py"].decode()

    async def verify(values: tuple[str, ...], sandbox: AsyncSandbox) -> str:
        got = numbers(values)
        if len(got) != len(expected) or any(abs(a - b) > 5.1e-5 for a, b in zip(got, expected, strict=True)):
            return f"expected {'; '.join(f'{value:g}' for value in expected)}, got {'; '.join(values)}"
        return await check_in_sandbox(sandbox, checks)

    return Task(title, prompt, script, verify, files)


def _script(fixes: tuple[Fix, ...], code: Callable[[frozenset[str]], str], pattern: str) -> tuple[Move, ...]:
    first = Move(When(first=True), RunCode(code(frozenset()), intent="import it as if it were clean"))
    return first, *repairs(fixes, code), Move(When(text=pattern), answer_from(pattern))


def _prices(column: str) -> Task:
    data = package_file("matplotlib", "mpl-data/sample_data/msft.csv")
    files = {"prices.csv": data, "checks.py": (_PRICES_CHECKS + _MAIN).encode()}
    then = f'mean = sum(row[{column!r}] for row in rows) / len(rows)\nprint(f"{{len(rows)}} days, mean {{mean:.4f}}")'

    def code(seen: frozenset[str]) -> str:
        return _CELL.format(source=_price_importer(seen), then=then)

    script = _script(_PRICES_FIXES, code, r"days, mean (\S+)")
    return _task(f"prices, {column}", _PRICES_PROMPT.format(column=column), script, files, (price_mean(data, column),))


def _price_importer(seen: frozenset[str]) -> str:
    day = 'strptime(row["Date"], "%d-%b-%y").date()' if "dates" in seen else 'fromisoformat(row["Date"]).date()'
    adjusted = "Adj. Close*" if "header" in seen else "Adj Close"
    whole = "int" if "whole" in seen else "float"
    order = 'sorted(rows, key=lambda row: row["Date"])' if "order" in seen else "rows"
    names = f'("Open", "High", "Low", "Close", {adjusted!r})'
    return f"""import csv
from datetime import datetime

def load(path):
    with open(path, newline="") as file:
        rows = [convert(row) for row in csv.DictReader(file)]
    return {order}

def convert(row):
    values = {{name: float(row[name]) for name in {names}}}
    return {{"Date": datetime.{day}, "Volume": {whole}(row["Volume"]), **values}}
"""


def _ulps(function: str) -> Task:
    data = package_file("numpy", f"_core/tests/data/umath-validation-set-{function}.csv")
    files = {"ulps.csv": data, "checks.py": (_ULPS_CHECKS + _MAIN).encode()}
    then = "import math\nodd = sum(not math.isfinite(output) for _, output in rows)\n"
    then += 'print(f"{len(rows)} rows, {odd} of them infinite or no number")'

    def code(seen: frozenset[str]) -> str:
        return _CELL.format(source=_ulp_importer(seen), then=then)

    script = _script(_ULPS_FIXES, code, r"(\d+) rows, (\d+) of them")
    counts = tuple(float(count) for count in ulp_counts(data))
    return _task(f"bit patterns, {function}", _ULPS_PROMPT, script, files, counts)


def _ulp_importer(seen: frozenset[str]) -> str:
    number = "float(text)"
    if "bits" in seen:
        number = 'struct.unpack(">f", int(text, 16).to_bytes(4, "big"))[0]'
    if "doubles" in seen:
        number = 'struct.unpack(">d" if "64" in dtype else ">f", int(text, 16).to_bytes(8 if "64" in dtype else 4, "big"))[0]'
    lines = '(line for line in file if not line.lstrip().startswith("#"))' if "comments" in seen else "file"
    return f"""import csv
import struct

def load(path):
    with open(path, newline="") as file:
        return [(number(row["dtype"], row["input"]), number(row["dtype"], row["output"])) for row in csv.DictReader({lines})]

def number(dtype, text):
    return {number}
"""


def price_mean(data: bytes, column: str) -> float:
    """The mean of a column, on the host."""
    header, *lines = data.decode().splitlines()
    index = header.split(",").index(column)
    return fmean(float(line.split(",")[index]) for line in lines)


def ulp_counts(data: bytes) -> tuple[int, int]:
    """Rows, and rows whose output is infinite or no number, from the exponents' bits alone."""
    rows = [line.split(",") for line in islice(data.decode().splitlines(), 1, None) if line.startswith("np.")]
    exponents = [int(output, 16) >> (52 if dtype.endswith("64") else 23) for dtype, _, output, *_ in rows]
    full = [0x7FF if row[0].endswith("64") else 0xFF for row in rows]
    return len(rows), sum(exponent & mask == mask for exponent, mask in zip(exponents, full, strict=True))
