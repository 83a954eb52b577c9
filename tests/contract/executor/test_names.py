"""Names as the kernel has them, bytes but for NUL and the slash: the same wherever files are told."""

# Names are bytes, which pathlib does not take.
# ruff: noqa: PTH102, PTH123, PTH208

import asyncio
import os
import tempfile

import pytest
from contract.executor.harness import PATIENCE
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.asyncio(loop_scope="session")

ODD = [
    *(bytes([byte]) for byte in range(1, 256) if byte not in b"/."),
    b"...",
    b"-rf",
    b"--",
    b" leading and trailing ",
    b"line\nbreak\r\n",
    b"\x1b[31m\x1b]0;title\x07",
    b"n" * 255,
    b"\xff" * 255,
    b"\xf0\x9f\x90\x9f" * 63,
    # A surrogate, an overlong form, the byte order mark, a cut character, and a character with two spellings.
    b"\xed\xa0\x80",
    b"\xed\xb2\x80\xff",
    b"\xc0\xaf",
    b"\xef\xbb\xbf",
    b"cut\xf0\x9f",
    b"\xc3\xa9",
    b"e\xcc\x81",
    b"[a-z]*?{b,c}!\\",
    b"$(touch x)`touch y`;&|<>\"'",
    b"%2f%00",
    b"C:\\con.txt",
    b"a" + b"\\" * 10,
]
NAMES = st.binary(min_size=1, max_size=255).filter(lambda name: not {0, 47} & set(name) and name not in (b".", b".."))
MAKE = """
import os
for name in {names!r}:
    with open(b'{folder}/' + name, 'wb') as file:
        file.write(b'needle in ' + name.replace(b'\\n', b' '))
"""


def last(paths):
    return {os.fsencode(path).rpartition(b"/")[2] for path in paths}


async def told_everywhere(sandbox, names, context):
    """What says of which names → what they were."""
    await sandbox.commands.run("rm -rf odd && mkdir odd")
    watch = await sandbox.files.watch_dir("odd")
    cell = await sandbox.run_code(MAKE.format(names=sorted(names), folder="odd"), context=context)
    assert cell.error is None
    found = {"a cell": last(cell.files.created)}
    await sandbox.files.write("odd/the end", "")
    seen = set()
    async with asyncio.timeout(PATIENCE):
        async for event in watch:
            if event.path == "/workspace/odd/the end":
                break
            seen.add(event.path)
    await watch.stop()
    found["watch"] = last(seen)
    await sandbox.files.remove("odd/the end")
    found["list"] = last(info.path for info in await sandbox.files.list("odd"))
    matches = [await sandbox.files.glob(pattern, max_matches=1000) for pattern in ("odd/*", "odd/.*")]
    found["glob"] = last(info.path for matched in matches for info in matched.items)
    # What begins with a dot is asked for by one.
    searched = [
        await sandbox.files.search("needle", "odd", include=include, max_matches=1000) for include in ("*", ".*")
    ]
    found["search"] = last(match.path for each in searched for match in each.items)
    return found


async def forget(sandbox, context, names):
    """The folder, of which the next cell is told."""
    removed = await sandbox.run_code("import shutil; shutil.rmtree('odd')", context=context)
    assert last(removed.files.deleted) == names


async def test_every_odd_name_is_told_as_it_is_wherever_files_are_told(sandbox, context):
    names = set(ODD)
    for what, told in (await told_everywhere(sandbox, names, context)).items():
        assert told == names, what
    for name in ODD:
        path = b"odd/" + name
        assert os.fsencode((await sandbox.files.get_info(path)).path) == b"/workspace/" + path
        assert (await sandbox.files.read(path, format="bytes"))[10:] == name.replace(b"\n", b" ")
    await sandbox.files.rename(b"odd/" + ODD[0], b"odd/" + ODD[0] + b"\xfe")
    await sandbox.files.rename(b"odd/" + ODD[0] + b"\xfe", b"odd/" + ODD[0])
    await forget(sandbox, context, names)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(names=st.sets(NAMES.filter(lambda name: not name.startswith(b".sandfleet-partial-")), min_size=1, max_size=8))
async def test_any_name_is_told_as_it_is_wherever_files_are_told(sandbox, context, names):
    for what, told in (await told_everywhere(sandbox, names, context)).items():
        assert told == names, what
    await forget(sandbox, context, names)


async def test_odd_names_are_copied_by_the_command_line_s_way(sandbox):
    """A tree up, and down again, with all of them."""
    names = set(ODD)
    with tempfile.TemporaryDirectory() as folder:
        there = os.fsencode(folder) + b"/t/"
        os.mkdir(there)
        for name in names:
            with open(there + name, "wb") as file:
                file.write(name)
        up = await sandbox.files.upload(there, "copied")
        assert (up.files, up.skipped_count) == (len(names), 0)
        down = await sandbox.files.download("copied", folder + "/back")
        assert (down.files, down.skipped_count) == (len(names), 0)
        back = os.fsencode(folder) + b"/back/"
        for name in names:
            with open(back + name, "rb") as file:
                assert file.read() == name
        assert set(os.listdir(back)) == names
    await sandbox.files.remove("copied", recursive=True)


async def test_a_command_gets_any_name_as_an_argument_and_as_its_folder(sandbox):
    # In /tmp itself a name may be that of the folder that the interpreter is bound from.
    await sandbox.commands.run("mkdir /tmp/odd")
    for name in ODD:
        # What a command line cannot say is said by a list of arguments.
        path = b"/tmp/odd/" + name
        code = "import os, sys; os.mkdir(os.fsencode(sys.argv[1])); os.chdir(os.fsencode(sys.argv[1])); print(os.getcwdb().hex())"
        result = await sandbox.commands.run(["python3", "-c", code, os.fsdecode(path)])
        assert bytes.fromhex(result.stdout) == path, result.stderr
        here = await sandbox.commands.run(
            ["python3", "-c", "import os; print(os.getcwdb().hex())"], cwd=os.fsdecode(path)
        )
        assert bytes.fromhex(here.stdout) == path
