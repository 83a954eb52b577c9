"""The Python that runs below any root: what is replaced in its program and its loader."""

import pytest
from sandfleet_executor.effects.namespace import runtime

DEBIAN = (b"/lib/x86_64-linux-gnu/", b"/usr/lib/x86_64-linux-gnu/", b"/lib/", b"/usr/lib/")
FILES = b"\0/etc/ld.so.cache\0/etc/ld.so.preload\0"


def test_a_loader_searches_the_runtime_alone():
    before = b"\0" + b"\0".join(DEBIAN) + FILES + b"\0".join(DEBIAN) + b"\0"
    after = runtime.own_folders_only(before)
    assert len(after) == len(before)
    assert after.count(b"/opt/sandfleet/.//lib/\0") == 2
    for old in (*DEBIAN, b"/etc/"):
        assert b"\0" + old not in after


def test_a_loader_that_searches_other_folders_is_refused():
    with pytest.raises(ValueError, match=r"no room|names no folder"):
        runtime.own_folders_only(b"\0/nix/store/lib/\0")


@pytest.mark.parametrize("loader", [b"/lib64/ld-linux-x86-64.so.2", b"/lib/ld-linux-aarch64.so.1"])
def test_a_program_names_the_loader_of_the_runtime(loader):
    program = b"ELF\0" + loader + b"\0rest"
    assert runtime.loader_of(program) == loader
    made = runtime.replaced(program, loader, b"/opt/sandfleet/ld.so")
    assert (len(made), made[4:25]) == (len(program), b"/opt/sandfleet/ld.so\0")


def test_a_program_without_that_loader_is_refused():
    with pytest.raises(ValueError, match="names no loader"):
        runtime.loader_of(b"ELF\0/lib/ld-musl-x86_64.so.1\0")
