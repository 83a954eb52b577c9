"""A smolagents CodeAgent: its actions run in a sandbox, its tools in this process. The model is scripted."""

from typing import Any

from sandfleet.integrations.smolagents import SandfleetExecutor
from smolagents import CodeAgent, Model, tool
from smolagents.models import ChatMessage, MessageRole

ORDERS = {"ann": [12, 30], "bob": [7]}
ACTIONS = (
    "<code>\norders = find_orders('ann')\nprint(len(orders))\n</code>",
    "<code>\nfinal_answer(sum(orders))\n</code>",
)


@tool
def find_orders(customer: str) -> list[int]:
    """Find the orders of a customer.

    Args:
        customer: The name of the customer.

    """
    return ORDERS[customer]


class Scripted(Model):
    """A model that answers with the actions, one after the other."""

    def __init__(self) -> None:
        super().__init__(model_id="scripted")
        self.actions = iter(ACTIONS)

    def generate(self, *_args: Any, **_options: Any) -> ChatMessage:
        return ChatMessage(role=MessageRole.ASSISTANT, content=next(self.actions))


def main() -> object:
    """Run the agent. The sandbox ends with it."""
    with CodeAgent(tools=[find_orders], model=Scripted(), executor=SandfleetExecutor()) as agent:
        return agent.run("How much are all orders of Ann?")


if __name__ == "__main__":
    print(main())
