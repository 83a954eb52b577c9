"""(d) The textbook example of least squares. Printed texts get its intercept wrong: the computation decides."""

from fractions import Fraction

from sandfleet.codeact import Action, Conversation, FinalAnswer, RunCode
from sandfleet.codeact.policies.scripted import Move, When, answer_from
from sandfleet.demo.task import Task, numbers
from sandfleet.sandbox import AsyncSandbox

TITLE = "least squares"
_X, _Y = (1, 2, 3, 4, 5), (2, 4, 5, 4, 5)
_PROMPT = (
    "Fit a straight line by least squares to x = 1, 2, 3, 4, 5 and y = 2, 4, 5, 4, 5. "
    "Answer with the slope and the intercept, separated by a semicolon, to at least 3 decimals where they have them."
)
_DATA = f"x, y = {list(_X)}, {list(_Y)}\n"
_BY_HAND = """
n = len(x)
slope = (n * sum(a * b for a, b in zip(x, y)) - sum(x) * sum(y)) / (n * sum(a * a for a in x) - sum(x) ** 2)
"""
_INTERCEPT = "intercept = sum(y) / n - slope * sum(x) / n\n"
_PRINT = 'print(f"slope {slope:.6g}, intercept {intercept:.6g}")\n'
_ANSWER = answer_from(r"slope (\S+), intercept (\S+)", "the line of least squares")
_LIBRARY = "import statistics\nslope, intercept = statistics.linear_regression({}, {})\n"


def make(seed: int, *, chaos: bool = False) -> Task:
    """Three ways to the same line, by seed; each meets a real obstacle first."""
    del chaos
    script = (_from_memory, _library, _exact)[seed % 3]()
    return Task("x = 1…5, y = 2, 4, 5, 4, 5", _PROMPT, script, _verify)


def _from_memory() -> tuple[Move, ...]:
    # The loop must not accept an intercept that was never computed.
    def recite(conversation: Conversation) -> Action:
        last = conversation.steps[-1].evidence
        return FinalAnswer(("0.6", "1.8"), last.execution_id if last else "", intent="recite the intercept from memory")

    return (
        Move(When(first=True), RunCode(_DATA + _BY_HAND + 'print(f"slope {slope:.6g}")', intent="compute the slope")),
        Move(When(text=r"^\s*slope \S+\s*$"), recite),
        Move(When(text="ANSWER REJECTED"), RunCode(_INTERCEPT + _PRINT, intent="compute the intercept instead")),
        Move(When(text="intercept"), _ANSWER),
    )


def _library() -> tuple[Move, ...]:
    return (
        Move(
            When(first=True),
            RunCode(_DATA + _LIBRARY.format("zip(x, y)", "y") + _PRINT, intent="use the standard library, on pairs"),
        ),
        Move(When(error="TypeError"), RunCode(_LIBRARY.format("x", "y") + _PRINT, intent="give it two sequences")),
        Move(When(text="slope .*intercept"), _ANSWER),
    )


def _exact() -> tuple[Move, ...]:
    solve = "determinant = n * sxx - sx * sx\nslope = (n * sxy - sx * sy) / determinant\nintercept = (sy - slope * sx) / n\n"
    sums = "sx, sy, sxx, sxy = sum(x), sum(y), sum(a * a for a in x), sum(a * b for a, b in zip(x, y))\n"
    fractions = "from fractions import Fraction\nx, y = [[Fraction(v) for v in row] for row in (x, y)]\nn = len(x)\n"
    show = 'print(f"slope {slope} = {float(slope):.6g}")\nprint(f"slope {float(slope):.6g}, intercept {float(intercept):.6g}")'
    return (
        Move(When(first=True), RunCode(_DATA + solve + _PRINT, intent="solve the normal equations")),
        Move(When(error="NameError"), RunCode(fractions + sums + solve + show, intent="make the sums first, exactly")),
        Move(When(text="slope .*intercept"), _ANSWER),
    )


def line() -> tuple[Fraction, Fraction]:
    """Slope and intercept, by centred sums in exact arithmetic."""
    mean_x, mean_y = Fraction(sum(_X), len(_X)), Fraction(sum(_Y), len(_Y))
    spread = sum((x - mean_x) ** 2 for x in _X)
    slope = sum(((x - mean_x) * (y - mean_y) for x, y in zip(_X, _Y, strict=True)), Fraction(0)) / spread
    return slope, mean_y - slope * mean_x


async def _verify(values: tuple[str, ...], _sandbox: AsyncSandbox) -> str:
    got, expected = numbers(values), tuple(float(value) for value in line())
    right = len(got) == len(expected) and all(abs(a - b) < 5e-4 for a, b in zip(got, expected, strict=True))
    return "" if right else f"expected slope {expected[0]:g} and intercept {expected[1]:g}, got {'; '.join(values)}"
