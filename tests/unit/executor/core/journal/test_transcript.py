"""Which results stand in a record."""

from base64 import b64decode

from sandfleet_executor.core.executions.events import Result
from sandfleet_executor.core.executions.records import CELL
from sandfleet_executor.core.journal.records import MAX_RECORD_BYTES, encode, without_content
from sandfleet_executor.core.journal.transcript import PICTURE_BYTES, Transcript


def a_record(*results):
    transcript = Transcript("e1", CELL, 0.0)
    for result in results:
        transcript.see(result)
    return transcript._results


def test_small_plots_stand_in_the_record_and_others_have_their_digest_alone():
    (text, plot), (large,), (other,) = (
        a_record(Result((("text/plain", b"<Figure>"), ("image/png", b"\x89PNG")), is_main=True)),
        a_record(Result((("image/png", b"x" * (PICTURE_BYTES + 1)),), is_main=False)),
        a_record(Result((("image/jpeg", b"jpeg"),), is_main=False)),
    )
    assert (text["text"], b64decode(plot["base64"])) == ("<Figure>", b"\x89PNG")
    assert all("base64" not in one and one["sha256"] for one in (large, other))
    # A record that is too large keeps the digest.
    assert without_content([plot]) == [
        {name: plot[name] for name in ("mime", "bytes", "sha256", "main")} | {"cut": True}
    ]


def test_the_plots_of_one_record_are_bounded_together():
    plots = [Result((("image/png", b"x" * (PICTURE_BYTES // 3)),), is_main=False)] * 9
    found = a_record(*plots)
    assert sum("base64" in one for one in found) == 3
    assert len(encode(found)) < MAX_RECORD_BYTES
