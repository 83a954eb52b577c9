"""An agent that analyses a table, and the report about it: `python examples/data_agent.py`, then open report.html.

Its moves are written down, so that the example needs no model: put `OpenAIPolicy("gpt-5")` in the place of `moves`.
"""

import asyncio

from sandfleet import AsyncSandbox
from sandfleet.codeact import Action, CodeActAgent, Conversation, FinalAnswer, RunCode
from sandfleet.driver import AgentTask, FleetDriver

SALES = "shop,price,sold\n" + "".join(
    f"{shop},{18 + n % 7}.{n % 10},{(n * step) % 43 + 4}\n"
    for n in range(40)
    for shop, step in (("Bonn", 5), ("Köln", 7), ("Trier", 3))
)
STEPS = (
    RunCode("import pandas as pd\ndf = pd.read_csv('sales.csv')\ndf.head()", intent="Look at the first rows"),
    RunCode("df['revenue'] = df.prise * df.sold", intent="Compute the revenue of each row"),
    RunCode(
        "df['revenue'] = df.price * df.sold\nby_shop = df.groupby('shop').revenue.sum().round(2)\nby_shop",
        intent="Use the column's right name, and add up",
    ),
    RunCode(
        "import matplotlib.pyplot as plt\nby_shop.plot.barh(figsize=(6, 2), title='Revenue by shop')\nplt.show()",
        intent="Draw the revenue of each shop",
    ),
    RunCode("print(by_shop.idxmax(), by_shop.max())", intent="Name the best shop"),
)


async def moves(conversation: Conversation) -> Action:
    """Answer with the output of the last step."""
    if len(conversation.steps) < len(STEPS):
        return STEPS[len(conversation.steps)]
    evidence = conversation.last.evidence if conversation.last else None
    assert evidence is not None
    return FinalAnswer(evidence.output.strip(), evidence.execution_id)


def make_agent(sandbox: AsyncSandbox, task: AgentTask) -> CodeActAgent:
    """Make the agent of a task."""
    del task
    return CodeActAgent(moves, sandbox)


async def main() -> None:
    """Run one task, and write the page about it."""
    task = AgentTask(
        "sales", "Which shop in sales.csv has the highest revenue, and how much is it?", {"sales.csv": SALES}
    )
    async for result in FleetDriver().run(make_agent, [task], report="report.html"):
        print(result.end, *result.answer)


if __name__ == "__main__":
    asyncio.run(main())
