"""`In`, `Out` and the names that go with them."""

import pytest

pytestmark = pytest.mark.process

pytest_plugins = ("support.executor.worker_contexts",)


def test_values_are_found_by_the_numbers_of_their_cells(context):
    for code in ("'one'", "x = 2", "'three'"):
        context.run(code)
    assert context.run("_, __, _1, _3, sorted(Out), In[1:4]").text == str(
        ("three", "one", "one", "three", [1, 3], ["'one'", "x = 2", "'three'"])
    )
    assert context.run("_i, _ii, get_ipython().execution_count").text == str(
        ("_, __, _1, _3, sorted(Out), In[1:4]", "'three'", 5)
    )


@pytest.mark.parametrize("code", ["5;", "None", "x = 5", "def f(): return 5", "1 / 0"])
def test_a_cell_without_a_value_leaves_none_behind(context, code):
    context.run("'before'")
    context.run(code)
    assert context.run("_, sorted(Out), '_2' in globals()").text == "('before', [1], False)"


@pytest.mark.parametrize("name", ["_", "__", "___"])
def test_names_that_code_uses_itself_stay_its_own(context, name):
    context.run(f"{name} = 'mine'")
    context.run("1")
    assert context.run(f"{name}, Out[2]").text == "('mine', 1)"


def test_showing_out_itself_does_not_put_it_into_itself(context):
    context.run("1")
    context.run("Out")
    assert context.run("sorted(Out), Out is _oh").text == "([1], True)"


def test_magics_read_the_same_history(context):
    context.run("x = 1")
    context.run("'v'")
    assert context.run("%history 1-2").out == "x = 1\n'v'\n"
    context.run("%reset -f")
    context.run("'after'")
    assert context.run("sorted(Out), In[5]").text == str(([5], "'after'"))


def test_numbers_that_are_missing_leave_a_gap(context):
    context.run("'one'")
    context.cells += 3
    context.run("'five'")
    assert context.run("_5, In[1:6]").text == str(("five", ["'one'", "", "", "", "'five'"]))


def test_the_newest_hundred_values_are_kept(context):
    for number in range(1, 103):
        context.run(str(number))
    said = context.run("len(Out), min(Out), '_2' in globals(), _3, _").text
    assert said == "(100, 3, False, 3, 102)"


def test_sources_are_kept_up_to_a_limit(context):
    for number in range(3):
        context.run(f"'{number}' # {'x' * (1 << 19)}")
    assert context.run("[len(each) > 0 for each in In]").text == "[False, False, False, True, True]"


def test_values_are_forgotten_while_the_interpreter_has_more_than_half_of_the_memory(fork):
    context = fork(memory_bytes=600 << 20)
    context.run(
        "class Big:\n    def __init__(self): self.data = bytearray(120 << 20); self.data[::4096] = b'x' * 30720"
    )
    for _ in range(5):
        # Nothing else holds it.
        context.run("Big()")
    assert context.run("sorted(Out), '_4' in globals(), __, type(_).__name__").text == "([6], False, '', 'Big')"


def test_without_a_known_limit_memory_is_not_looked_at(fork):
    # Control: what the limit does.
    context = fork()
    context.run("big = bytearray(400 << 20); big[::4096] = b'x' * 102400")
    for number in range(3):
        context.run(str(number))
    assert context.run("sorted(Out)").text == "[2, 3, 4]"


def test_deleting_or_replacing_its_names_breaks_nothing(context):
    context.run("'a'")
    context.run("del Out, In, _1, _")
    context.run("Out = In = 5")
    assert context.run("6").text == "6"
    assert context.run("_, Out").text == "(6, 5)"
