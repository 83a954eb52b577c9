"""A smolagents CodeAgent whose actions run in a sandbox. The model is scripted: put yours in its place."""

from typing import Any

from sandfleet.integrations.smolagents import SandfleetExecutor
from smolagents import CodeAgent, Model
from smolagents.models import ChatMessage, MessageRole

ACTIONS = ("<code>\norders = [12, 30]\nprint(len(orders))\n</code>", "<code>\nfinal_answer(sum(orders))\n</code>")


class Scripted(Model):
    """A model that answers with the actions, one after the other."""

    def __init__(self) -> None:
        super().__init__(model_id="scripted")
        self.actions = iter(ACTIONS)

    def generate(self, *_args: Any, **_options: Any) -> ChatMessage:
        return ChatMessage(role=MessageRole.ASSISTANT, content=next(self.actions))


def main() -> object:
    """Run the agent. The sandbox ends with it."""
    with CodeAgent(tools=[], model=Scripted(), executor=SandfleetExecutor()) as agent:
        return agent.run("How much are all orders?")


if __name__ == "__main__":
    print(main())
