"""(e) Gross margin over 47 orders, exact to the last digit."""

from fractions import Fraction

from sandfleet.codeact import RunCode
from sandfleet.codeact.policies.scripted import Move, When, answer_from
from sandfleet.demo.task import Fix, Task, repairs
from sandfleet.sandbox import AsyncSandbox

TITLE = "gross margin"
ORDERS = 47
_PROMPT = (
    "orders.csv has 47 orders: quantity, unit price, unit cost, and a discount in percent of the price. Compute the gross margin "
    "(revenue after discount, less cost) over all orders, exactly: no rounding anywhere. Answer with the margin as a decimal "
    "number, and the margin rate (margin / revenue) as a reduced fraction a/b, separated by a semicolon."
)
_LOAD = """
import csv
{number}
with open("orders.csv", newline="") as file:
    orders = list(csv.DictReader(file))
revenue = cost = number("0")
for order in orders:
    quantity = number(order["quantity"])
    revenue += quantity * number(order["unit_price"]) * (number("100") - number(order["discount_percent"])) / number("100")
    cost += quantity * number(order["unit_cost"])
margin = revenue - cost
"""
_FLOAT = "number = float"
_FLOAT_FIXED = 'number = lambda text: float(text.replace(",", "").strip() or 0)'
_EXACT = 'from fractions import Fraction\nnumber = lambda text: Fraction(text.replace(",", "").strip() or 0)'
# What is computed has to agree with itself when it is summed the other way round.
_PROOF = """
again = sum(number(o["quantity"]) * (number(o["unit_price"]) * (1 - number(o["discount_percent"]) / 100) - number(o["unit_cost"]))
            for o in reversed(orders))
assert again == margin, f"not exact: {margin!r} one way, {again!r} the other"
from decimal import Decimal
rate = (margin / revenue) if isinstance(margin, Fraction) else Fraction(margin) / Fraction(revenue)
exact = Decimal(margin.numerator) / Decimal(margin.denominator)
assert Fraction(exact) == margin, "the decimal is rounded"
print(f"{len(orders)} orders, margin {exact}, rate {rate}")
"""
_FIXES = (
    Fix("separators", When(error="ValueError", text="could not convert"), "take out separators and fill blanks"),
    Fix("exact", When(error="AssertionError", text="not exact"), "floats do not add up: use fractions"),
    Fix("exact", When(error="NameError", text="Fraction"), "floats happened to add up, but a fraction is asked for"),
)


def make(seed: int, *, chaos: bool = False) -> Task:
    """Other orders for each seed."""
    del chaos
    data = orders_csv(seed)

    async def verify(values: tuple[str, ...], _sandbox: AsyncSandbox) -> str:
        margin, rate = expected(data)
        got = [part.strip() for value in values for part in value.split(";")]
        right = len(got) == 2 and _fraction(got[0]) == margin and _fraction(got[1]) == rate
        return "" if right else f"expected {float(margin)}; {rate}, got {'; '.join(values)}"

    script = (
        Move(When(first=True), RunCode(_code(frozenset()), intent="sum it up")),
        *repairs(_FIXES, _code),
        Move(
            When(text=f"{ORDERS} orders, margin"), answer_from(r"margin (\S+), rate (\S+)", "gross margin and its rate")
        ),
    )
    return Task(f"{ORDERS} orders, set {seed}", _PROMPT, script, verify, {"orders.csv": data.encode()})


def _code(seen: frozenset[str]) -> str:
    number = _EXACT if "exact" in seen else _FLOAT_FIXED if "separators" in seen else _FLOAT
    return _LOAD.replace("{number}", number) + _PROOF


def orders_csv(seed: int) -> str:
    """47 orders, the same for the same seed; prices over 1,000 have separators, as spreadsheets write them."""
    state, lines = seed * 7919 + 12345, ["order,quantity,unit_price,unit_cost,discount_percent"]
    for number in range(1, ORDERS + 1):
        draws = []
        for bound in (24, 180_000, 40, 6):
            # Knuth's MMIX generator: the same everywhere, and no module whose version could change it.
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            draws.append((state >> 33) % bound)
        price = draws[1] + 199
        cost = price * (45 + draws[2]) // 100
        discount = "" if draws[3] == 0 else str(draws[3] * 3)
        lines.append(f'{1000 + number},{draws[0] + 1},"{price / 100:,.2f}","{cost / 100:,.2f}",{discount}')
    return "\n".join(lines) + "\n"


def expected(data: str) -> tuple[Fraction, Fraction]:
    """Margin and rate in whole ten-thousandths: integers only, another way than any agent's."""
    revenue = cost = 0
    for line in data.splitlines()[1:]:
        _, quantity, rest = line.split(",", 2)
        _, price, _, unit_cost, discount = rest.split('"')
        cents, cost_cents = (int(text.replace(",", "").replace(".", "")) for text in (price, unit_cost))
        revenue += int(quantity) * cents * (100 - int(discount.lstrip(",") or 0))
        cost += int(quantity) * cost_cents * 100
    return Fraction(revenue - cost, 10_000), Fraction(revenue - cost, revenue)


def _fraction(text: str) -> Fraction | None:
    try:
        return Fraction(text.partition("=")[2].strip() or text.replace(",", ""))
    except (ValueError, ZeroDivisionError):
        return None
