"""Webhooks about reviews: what they say, how they are signed, and how often they are sent."""

import asyncio
import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from sandfleet_api.executor.v1 import review_pb2
from sandfleet_operator.fleet.reviews import webhook as module
from sandfleet_operator.fleet.reviews.webhook import (
    Message,
    Webhook,
    WebhookError,
    pending_message,
    posted,
    read_secret,
    signature,
    webhook,
)

KEY = bytes(range(32))
SECRET = "whsec_" + base64.b64encode(KEY).decode()
NOW = 1_700_000_000.0


def a_review(**changes):
    made = review_pb2.PendingReview(
        review_id="r1", kind="cell", content=b"SECRET", intent="SECRET", settings="SECRET", name="SECRET"
    )
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def test_the_signature_is_that_of_the_standard():
    """The example of the specification's reference libraries."""
    key = read_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    message = Message("msg_p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}')
    assert signature(key, message, 1614265330) == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_message_names_what_waits_and_has_nothing_of_its_content():
    message = pending_message("team/one", "agent", 2, a_review())
    said = json.loads(message.body)
    assert said["type"] == "review.pending"
    assert (said["data"]["sandbox_id"], said["data"]["review_id"], said["data"]["approvals"]) == ("team/one", "r1", 2)
    assert b"SECRET" not in message.body
    assert message.id == pending_message("team/one", "agent", 2, a_review()).id, "a repetition can be told"
    assert message.id != pending_message("team/one", "agent", 2, a_review(review_id="r2")).id


@pytest.mark.parametrize(
    "text", ["", "whsec_", "whsec_!", "whsec_AAAA", base64.b64encode(KEY).decode(), "whsec_" + "A" * 400]
)
def test_a_secret_that_is_none_is_refused_without_being_shown(text):
    with pytest.raises(WebhookError, match="cannot sign webhooks") as caught:
        read_secret(text)
    assert len(text) < 10 or text not in str(caught.value)


@pytest.mark.parametrize("url", ["ftp://x", "file:///etc/passwd", "x"])
def test_an_url_that_is_none_is_refused(url):
    with pytest.raises(WebhookError, match="no http or https URL"):
        webhook({module.URL: url, module.SECRET: SECRET}, lambda: NOW)
    assert webhook({}, lambda: NOW) is None


class Receiver:
    """Answers with the statuses that a test gives, then with 200."""

    def __init__(self, *statuses):
        self.statuses, self.posted = list(statuses), []

    def __call__(self, url, body, headers):
        self.posted.append((body, dict(headers)))
        status = self.statuses.pop(0) if self.statuses else 200
        if isinstance(status, Exception):
            raise status
        return status


async def sent(receiver, *messages, monkeypatch, clock=lambda: NOW):
    monkeypatch.setattr(module, "PAUSES", module.Backoff(0.0, 0.0))
    hook = Webhook("https://here", KEY, clock, receiver)
    for message in messages:
        hook.send(message)
    async with asyncio.timeout(60):
        while hook._waiting:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
    hook.close()


@pytest.mark.parametrize(
    ("statuses", "attempts"),
    [([], 1), ([500, 503], 3), ([OSError("refused")], 2), ([302], 2), ([500] * 9, module.ATTEMPTS)],
)
async def test_a_message_is_sent_until_it_is_taken_and_some_times_at_most(statuses, attempts, monkeypatch):
    receiver = Receiver(*statuses)
    await sent(receiver, Message("m1", b"{}"), monkeypatch=monkeypatch)
    assert len(receiver.posted) == attempts
    assert {headers["webhook-id"] for _, headers in receiver.posted} == {"m1"}


async def test_each_attempt_is_signed_with_its_own_time(monkeypatch):
    times = iter([NOW, NOW + 60])
    receiver = Receiver(500)
    await sent(receiver, Message("m1", b"{}"), monkeypatch=monkeypatch, clock=lambda: next(times))
    for (body, headers), moment in zip(receiver.posted, (NOW, NOW + 60), strict=True):
        assert headers["webhook-timestamp"] == str(int(moment))
        assert headers["webhook-signature"] == signature(KEY, Message("m1", body), int(moment))
        # Controls: another body, another time and another key have other signatures.
        assert headers["webhook-signature"] != signature(KEY, Message("m1", b"[]"), int(moment))
        assert headers["webhook-signature"] != signature(KEY, Message("m1", body), int(moment) + 1)
        assert headers["webhook-signature"] != signature(KEY[::-1], Message("m1", body), int(moment))


@pytest.mark.parametrize(("bound", "all_of_them"), [("MAX_WAITING", 3), ("MAX_OF_NAMESPACE", 6)])
async def test_a_flood_of_messages_is_bounded(monkeypatch, caplog, bound, all_of_them):
    monkeypatch.setattr(module, bound, 3)
    gate = threading.Event()
    hook = Webhook("https://here", KEY, lambda: NOW, lambda *_: gate.wait(60) and 200)
    for number in range(20):
        hook.send(Message(f"m{number}", b"{}", ("team", "other")[number % 2]))
    assert hook._waiting.total() == all_of_them
    assert "dropped" in caplog.text
    gate.set()
    hook.close()


async def test_messages_that_a_receiver_does_not_take_hold_up_no_other_namespace():
    gate, taken = threading.Event(), []

    def post(_url, body, _headers):
        if body == b"slow":
            gate.wait(60)
        taken.append(body)
        return 200

    hook = Webhook("https://here", KEY, lambda: NOW, post)
    for number in range(50):
        hook.send(Message(f"m{number}", b"slow", "mean"))
    hook.send(Message("mine", b"quick", "team"))
    async with asyncio.timeout(60):
        while taken != [b"quick"]:
            await asyncio.sleep(0.01)
    gate.set()
    hook.close()


@pytest.fixture
def server():
    """A real receiver on loopback; it redirects what asks for /elsewhere."""
    received = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            received.append((self.path, dict(self.headers), self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(302 if self.path == "/elsewhere" else 204)
            self.send_header("location", "/")
            self.end_headers()

        def log_message(self, *_):
            pass

    made = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{made.server_port}", received
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.mark.process
def test_a_real_receiver_gets_the_body_and_no_redirect_is_followed(server, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    url, received = server
    assert posted(url + "/", b"{}", {"webhook-id": "m1"}) == 204
    assert posted(url + "/elsewhere", b"{}", {"webhook-id": "m2"}) == 302
    assert [(path, body) for path, _, body in received] == [("/", b"{}"), ("/elsewhere", b"{}")]
