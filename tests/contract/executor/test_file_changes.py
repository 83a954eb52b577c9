"""Which files an execution created, modified and deleted."""

import asyncio

import pytest
from contract.executor.harness import until
from sandfleet import Outcome

pytestmark = pytest.mark.asyncio(loop_scope="session")


def changed(execution):
    assert execution.files.complete
    assert execution.files.omitted == 0
    return [sorted(names) for names in (execution.files.created, execution.files.modified, execution.files.deleted)]


async def test_a_cell_s_changes_are_told_by_kind(sandbox, context):
    for name in ("kinds/old", "kinds/going", "kinds/same"):
        await sandbox.files.write(name, "x")
    code = "import os\nopen('kinds/new', 'w').write('1')\nopen('kinds/old', 'a').write('1')\nos.unlink('kinds/going')\nopen('kinds/same').read()"
    execution = await sandbox.run_code(code, context=context)
    assert changed(execution) == [["kinds/new"], ["kinds/old"], ["kinds/going"]]
    assert not (await sandbox.run_code("1", context=context)).files


async def test_a_command_s_changes_are_told_also_when_it_fails(sandbox):
    result = await sandbox.commands.run("mkdir -p deep/er/still && echo 1 > deep/er/still/file; exit 3")
    assert result.exit_code == 3
    assert "deep/er/still/file" in result.files.created


async def test_what_is_made_and_removed_in_one_execution_is_no_change(sandbox, context):
    code = "import os\nopen('brief', 'w').write('x')\nos.unlink('brief')"
    assert changed(await sandbox.run_code(code, context=context)) == [[], [], []]


async def test_a_file_that_is_replaced_was_modified_and_one_that_is_renamed_was_deleted_and_created(sandbox, context):
    await sandbox.files.write("replaced", "1")
    await sandbox.files.write("renamed", "1")
    code = "import os\nopen('new', 'w').write('2')\nos.replace('new', 'replaced')\nos.rename('renamed', 'other')"
    assert changed(await sandbox.run_code(code, context=context)) == [["other"], ["replaced"], ["renamed"]]


async def test_files_outside_of_the_workspace_are_not_told(sandbox, context):
    assert changed(await sandbox.run_code("open('/tmp/elsewhere', 'w').write('x')", context=context)) == [[], [], []]


async def test_changes_of_background_processes_are_reported_by_the_execution_that_runs_meanwhile(sandbox):
    result = await sandbox.commands.run(
        "setsid sh -c 'echo 1 > by-daemon' & until [ -s by-daemon ]; do sleep 0.02; done"
    )
    assert "by-daemon" in result.files.created


async def test_names_that_are_no_utf_8_are_told(sandbox):
    result = await sandbox.commands.run(r"""touch "$(printf 'odd\377name')" 'with
newline' ' blank '""")
    assert sorted(result.files.created) == [" blank ", "odd\udcffname", "with\nnewline"]


async def test_a_killed_execution_tells_its_changes(sandbox, context):
    execution = await sandbox.run_code("open('last-words', 'w').write('x')\nimport os; os._exit(1)", context=context)
    assert (execution.outcome, changed(execution)[0]) == (Outcome.KILLED, ["last-words"])


async def test_with_10_000_files_present_a_change_is_told_exactly(sandbox, context):
    made = await sandbox.run_code(
        "import os\nfor d in range(100):\n    os.makedirs(f'many/{d}')\n    for n in range(100): open(f'many/{d}/{n}', 'w').close()",
        context=context,
        timeout=60,
    )
    assert made.outcome is Outcome.OK
    assert len(made.files.created) + made.files.omitted >= 10_000
    code = "open('many/7/new', 'w').write('x')\nopen('many/99/99', 'w').write('x')\nos.unlink('many/0/0')"
    assert changed(await sandbox.run_code(code, context=context)) == [["many/7/new"], ["many/99/99"], ["many/0/0"]]
    gone = await sandbox.commands.run("rm -r many", timeout=60)
    assert len(gone.files.deleted) + gone.files.omitted >= 9_999


async def test_executions_that_overlap_each_tell_what_changed_while_they_ran(sandbox, context):
    first = asyncio.create_task(
        sandbox.run_code(
            "import os, time\nopen('lap-a', 'w').write('x')\nwhile not os.path.exists('lap-b'): time.sleep(0.02)",
            timeout=60,
        )
    )
    await until(lambda: sandbox.files.exists("lap-a"))
    second = await sandbox.run_code("open('lap-b', 'w').write('x')", context=context)
    assert "lap-b" in second.files.created
    assert {"lap-a", "lap-b"} <= set((await first).files.created)


async def test_the_workspace_s_own_folder_of_packages_is_the_session_s(sandbox, context):
    # Caches that no user asked for are not told as the code's changes.
    await sandbox.files.write("cached.py", "x = 1\n")
    assert changed(await sandbox.run_code("import cached", context=context)) == [[], [], []]
