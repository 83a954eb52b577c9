"""Policies that are plain functions."""

import threading
from functools import partial

import pytest
from sandfleet.codeact.conversation import Conversation, RunCode, next_action

TASK = Conversation("How many?")
HERE = threading.get_ident()


def plain(conversation, word="plain"):
    return RunCode(f"{conversation.task} {word} {threading.get_ident() == HERE}")


async def awaited(conversation):
    return RunCode(f"{conversation.task} awaited {threading.get_ident() == HERE}")


class Object:
    async def __call__(self, conversation):
        return await awaited(conversation)


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (plain, "plain False"),
        (partial(plain, word="part"), "part False"),
        (awaited, "awaited True"),
        (Object(), "awaited True"),
        (lambda conversation: awaited(conversation), "awaited True"),  # noqa: PLW0108 - no coroutine function itself
    ],
)
async def test_a_policy_is_a_function_of_either_kind(policy, words):
    assert (await next_action(policy, TASK)).code == f"How many? {words}"


async def test_what_a_plain_policy_raises_is_raised():
    def fails(conversation):
        raise ValueError(conversation.task)

    with pytest.raises(ValueError, match="How many"):
        await next_action(fails, TASK)
