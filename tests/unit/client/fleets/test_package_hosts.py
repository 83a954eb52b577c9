"""The hosts from which the tools of this machine install, as their own configuration has them."""

import shutil

import pytest
from sandfleet import Egress
from sandfleet._fleets import package_hosts
from sandfleet.errors import InvalidArgument

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A home without any configuration but the test's."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_git_has_the_hosts_of_remotes_rewritten_addresses_and_credentials(home):
    (home / ".gitconfig").write_text(
        '[url "https://me:word@mirror.test:8443/"]\n\tinsteadOf = https://far.test/\n'
        '[url "git@alias.test:"]\n\tinsteadOf = https://other.test/\n'
        '[credential "https://key.test"]\n\thelper = none\n'
        '[http "https://proxied.test/"]\n\tsslVerify = true\n[http]\n\tpostBuffer = 1\n[user]\n\tname = me\n'
    )
    (home / ".git").mkdir()
    package_hosts._output(["git", "init", "-q", str(home)])
    for name, url in (
        ("a", "ssh://git@one.test:22/x"),
        ("b", "me@two.test:x.git"),
        ("c", "/srv/x"),
        ("d", "http://me.test/"),
    ):
        package_hosts._output(["git", "remote", "add", name, url])
    names, envs = package_hosts.of("git")
    assert set(names) == {
        *("mirror.test:8443", "alias.test", "key.test", "proxied.test", "one.test", "two.test", "me.test")
    }
    # Without the password; and no address is rewritten to one by ssh, which leads nowhere from a sandbox.
    assert envs == {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "url.https://mirror.test:8443/.insteadOf",
        "GIT_CONFIG_VALUE_0": "https://far.test/",
    }


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_git_that_knows_no_host_is_told_as_such():
    with pytest.raises(InvalidArgument, match="git's configuration here names none"):
        package_hosts.of("git")


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="apt is not installed")
def test_debian_has_the_hosts_of_apts_sources_in_both_forms(home, monkeypatch):
    (home / "parts").mkdir()
    (home / "parts/new.sources").write_text(
        "Types: deb\nURIs: https://new.test:8443/debian http://second.test/debian\nSuites: stable\nComponents: main\n"
    )
    (home / "sources.list").write_text("deb http://old.test/debian stable main\ndeb file:/srv/debian ./\n")
    config = home / "apt.conf"
    config.write_text(f'Dir::Etc::sourcelist "{home}/sources.list";\nDir::Etc::sourceparts "{home}/parts";\n')
    monkeypatch.setenv("APT_CONFIG", str(config))
    names, envs = package_hosts.of("debian")
    assert (set(names), envs) == ({"old.test", "new.test:8443", "second.test"}, {})


async def test_sets_add_up_with_names_and_one_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setitem(package_hosts._TOOLS, "git", lambda: (("a.test",), {"X": "1"}))
    found = await package_hosts.resolved(Egress.packages("git") + Egress(("b.test",)))
    assert (set(found.names), found.tools, found.envs) == ({"a.test", "b.test"}, (), {"X": "1"})
    with pytest.raises(InvalidArgument, match='the tools are "python", "node", "debian", "git"'):
        package_hosts.of("ruby")


@pytest.mark.parametrize("tool", ["python", "node", "debian", "git"])
def test_a_program_that_fails_is_named(tool, monkeypatch):
    monkeypatch.setattr(package_hosts, "_output", lambda _command: "")
    with pytest.raises(InvalidArgument, match=f"cannot find the hosts of '{tool}'"):
        package_hosts.of(tool)
