"""Cells and contexts beside ipykernel."""

from collections.abc import Iterator

from figures import Figure, progress, quantile, repeat
from jupyter_client.manager import start_new_kernel
from sandfleet import Sandbox

RUNS = 300
STARTS = 15


def figures() -> Iterator[Figure]:
    progress("trivial cell, and ipykernel's")
    with Sandbox.create() as sandbox:
        ours = repeat(lambda: sandbox.run_code("1"), RUNS, warm_up=20)
        contexts = iter(range(10_000))
        starts = repeat(lambda: sandbox.create_context(f"bench-{next(contexts)}"), STARTS)
    manager, client = start_new_kernel()
    try:
        theirs = repeat(lambda: client.execute_interactive("1", silent=False, output_hook=lambda _: None), RUNS)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    for share in (0.5, 0.99):
        name = f"trivial cell, p{share * 100:g}"
        yield Figure(
            name, quantile(ours, share), "ms", quantile(theirs, share), "beside ipykernel; p50 ≤ 2 ms and ≤ 0.25"
        )
    progress("new context, and ipykernel's start")
    theirs = repeat(start_kernel, 5, warm_up=1)
    yield Figure(
        "new context, p50", quantile(starts, 0.5), "ms", quantile(theirs, 0.5), "beside an ipykernel; p50 ≤ 30 ms"
    )
    yield from changes()


def start_kernel() -> None:
    manager, client = start_new_kernel()
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def changes() -> Iterator[Figure]:
    progress("trivial cell with 10,000 files in the workspace")
    with Sandbox.create() as empty, Sandbox.create() as full:
        full.run_code(
            "import pathlib\n"
            "for i in range(100):\n"
            "    folder = pathlib.Path(f'd{i}'); folder.mkdir()\n"
            "    for j in range(100): (folder / f'f{j}').write_text('x')"
        )
        one, other = [], []
        # By turns, so that both see the same noise.
        for _ in range(10):
            one += repeat(lambda: empty.run_code("1"), RUNS // 10)
            other += repeat(lambda: full.run_code("1"), RUNS // 10)
    note = "beside an empty workspace; ≤ 1.2"
    yield Figure("trivial cell, 10,000 files, p50", quantile(other, 0.5), "ms", quantile(one, 0.5), note)
