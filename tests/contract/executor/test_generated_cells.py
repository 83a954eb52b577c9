"""Random cells do in a sandbox what they do in the language itself. `make cells N=10000` runs more of them."""

import json
import os

import pytest
from support import generated_cells
from support.generated_cells import Said

pytestmark = pytest.mark.asyncio(loop_scope="session")

# Of each language. The long run has a session of 500 after the other.
COUNT = int(os.environ.get("SANDFLEET_CELLS", "60"))
SEED = int(os.environ.get("SANDFLEET_CELLS_SEED", "25"))
SESSION = 500
LANGUAGES = [each for each in generated_cells.MAKERS if not each.startswith("jupyter-") or COUNT > 100]


def said(language, execution):
    """As the language itself says it."""
    error = execution.error.name if execution.error else None
    text = execution.text
    if language == "sql" and text is not None:
        rows = json.loads(next(each.json for each in execution.results if each.is_main_result))["rows"]
        text = json.dumps([[None if each is None else str(each) for each in row] for row in rows])
    if language == "jupyter-ir":
        # All values that R prints are results of their own.
        return Said(execution.logs.stdout, "\n".join(each.text for each in execution.results) or None, error)
    return Said(execution.logs.stdout, None if error else text, error)


@pytest.mark.parametrize("language", LANGUAGES)
async def test_cells_do_what_they_do_in_the_language_itself(sandbox, language):
    if language not in (await sandbox.environment()).languages:
        pytest.skip(f"the sandbox has no {language}")
    if why := generated_cells.lacks(language):
        pytest.skip(why)
    wrong = []
    for first in range(0, COUNT, SESSION):
        cells = list(generated_cells.cells(language, SEED + first, min(SESSION, COUNT - first)))
        expected = generated_cells.directly(language, cells)
        assert len(expected) == len(cells)
        context = await sandbox.create_context(language=language)
        for code, right in zip(cells, expected, strict=True):
            execution = await sandbox.run_code(code, context=context, timeout=60)
            if (found := generated_cells.alike(said(language, execution))) != generated_cells.alike(right):
                wrong.append((code, found, right))
        await sandbox.delete_context(context)
    assert not wrong, f"{len(wrong)} of {COUNT}, the first: {wrong[0]}"
    # The generator makes cells of all kinds.
    assert {bool(each.error) for each in expected} == {True, False}


async def test_the_comparison_finds_a_difference(sandbox):
    """The control: a sandbox that added one character would be found."""
    execution = await sandbox.run_code("print('a')\n1")
    assert said("python", execution) == generated_cells.directly("python", ["print('a')\n1"])[0]
    assert said("python", execution) != generated_cells.directly("python", ["print('a ')\n1"])[0]
