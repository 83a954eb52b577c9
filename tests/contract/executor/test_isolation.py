"""What user code can see, reach and change of the machine.

Each attack also runs where the defence is off, and works there.
"""

import ast
import os

import pytest
from sandfleet import Outcome

pytestmark = pytest.mark.asyncio(loop_scope="session")

HIDDEN = [
    "readable by everybody",
    "of root alone",
    "at home",
    "the repository",
    "the executor's private folder",
    "the keys of tokens",
    "the stored executions",
    "the executor's socket",
]
# Ways to one path of the host: by name, and through whatever other process can be seen.
REACH = """
import glob, os
found = []
for root in ['', *glob.glob('/proc/[0-9]*/root'), *glob.glob('/proc/[0-9]*/cwd/../../../..')]:
    try:
        os.stat(root + path)
        found.append(root)
    except OSError: pass
found
"""
# Links and copies that would come out in the workspace.
LINK = """
import os
made = []
for make in (os.link, lambda path, new: open(new, 'w').write(open(path).read())):
    try:
        make(path, '/tmp/stolen')
        made.append(open('/tmp/stolen').read())
    except OSError: pass
    finally:
        if os.path.exists('/tmp/stolen'): os.unlink('/tmp/stolen')
made
"""
TRACE = """
import ctypes, os, subprocess
libc = ctypes.CDLL(None, use_errno=True)
def attach(pid):
    if libc.ptrace(16, pid, 0, 0):
        return os.strerror(ctypes.get_errno())
    os.waitpid(pid, 0)
    libc.ptrace(17, pid, 0, 0)
    return 'attached'
child = subprocess.Popen(['sleep', '1000'])
answers = attach(1), attach(child.pid)
child.kill()
answers
"""
# The first words of every process that can be seen and has some: one that has just ended has none.
WORDS = """
import os
def words(pid):
    try: return open(f'/proc/{pid}/cmdline').read().split('\\0')[:4]
    except OSError: return ['']
[found for pid in os.listdir('/proc') if pid.isdecimal() and (found := words(pid)) != ['']]
"""
PEEK = """
import os
def peek(name):
    try:
        with open(f'/proc/1/{name}', 'rb') as file: return len(file.read(10)) > 0
    except OSError: return False
def look(name):
    try: return bool(os.readlink(f'/proc/1/{name}'))
    except OSError: return False
[name for name in ('environ', 'maps', 'mem', 'stack', 'syscall', 'auxv') if peek(name)] + [name for name in ('root', 'cwd', 'exe', 'fd/0') if look(name)]
"""


async def value(executor, code, *, context=None):
    """What the cell's last expression is."""
    execution = await executor.sandbox.run_code(code, context=context, timeout=60)
    assert execution.outcome is Outcome.OK, execution
    return ast.literal_eval(execution.text)


@pytest.mark.parametrize("what", HIDDEN)
@pytest.mark.attack("reads a file of the host", "it is not there")
async def test_files_of_the_host_are_not_there_by_any_way(executor, unprotected, what):
    if what not in executor.hidden:
        pytest.skip(f"needs {what}: this set-up has none")
    code = f"path = {executor.hidden[what]!r}\n{REACH}"
    assert await value(executor, code) == []
    assert "" in await value(unprotected, code)


@pytest.mark.parametrize("what", HIDDEN[:3])
@pytest.mark.attack("links or copies a file of the host", "it is not there")
async def test_files_of_the_host_cannot_be_linked_or_copied(executor, unprotected, what):
    code = f"path = {executor.hidden[what]!r}\n{LINK}"
    assert await value(executor, code) == []
    assert executor.secret in await value(unprotected, code)


@pytest.mark.needs("unix socket")
@pytest.mark.attack("connects to the executor's socket", "it is not there")
async def test_the_executor_s_socket_cannot_be_reached(executor, unprotected):
    path = executor.hidden["the executor's socket"]
    code = f"import socket; socket.socket(socket.AF_UNIX).connect_ex({path!r})"
    assert await value(executor, code) != 0
    assert await value(unprotected, code) == 0


@pytest.mark.attack("looks for processes outside of the session", "none is seen")
async def test_only_the_session_s_own_processes_are_visible(executor, unprotected):
    seen = await value(executor, WORDS)
    # The spawner, this context and its copy, and one in reserve of each kind: all of them its forks.
    assert 2 <= len(seen) <= 5
    assert all(words == seen[0] for words in seen)
    assert not any("sandfleet_executor" in words for words in seen)
    assert any("sandfleet_executor" in words for words in await value(unprotected, WORDS))


@pytest.mark.attack("looks for a secret in environments", "none is there")
async def test_no_environment_that_can_be_read_holds_a_secret(executor, unprotected):
    code = (
        "import glob\ndef read(path):\n    try: return open(path, 'rb').read()\n    except OSError: return b''\n"
        f"any({executor.secret.encode()!r} in read(path) for path in glob.glob('/proc/[0-9]*/environ'))"
    )
    assert await value(executor, code) is False
    assert await value(unprotected, code) is True


@pytest.mark.attack("traces PID 1 of its session", "refused")
async def test_pid_1_cannot_be_traced_though_tracing_works(executor, unprotected):
    attached = await value(executor, TRACE)
    assert attached[0] == "Operation not permitted"
    # On one machine the filter of system calls refuses all tracing: the control is a process without it.
    filtered = "no_new_privs of its own" in executor.host.traits
    assert attached[1] == ("Operation not permitted" if filtered else "attached")
    own = TRACE.replace("attach(1)", "''")
    assert (await value(unprotected if filtered else executor, own))[1] == "attached"


@pytest.mark.attack("reads what PID 1 has open, and its memory", "refused", control="in it")
async def test_nothing_of_pid_1_can_be_read(executor):
    assert await value(executor, PEEK) == []
    # Control: of itself a process can read all of it.
    assert "environ" in await value(executor, PEEK.replace("/proc/1/", "/proc/self/"))


@pytest.mark.needs("own network")
@pytest.mark.parametrize("family", ["tcp", "abstract", "udp"])
@pytest.mark.attack("reaches a network", "no route")
async def test_there_is_no_way_out_to_any_network(executor, unprotected, family):
    codes = {
        "tcp": f"import socket; socket.socket().connect_ex(('127.0.0.1', {executor.host.tcp_port}))",
        "abstract": f"import socket; socket.socket(socket.AF_UNIX).connect_ex('\\0{executor.host.abstract_name}')",
        "udp": "import socket; socket.socket(type=socket.SOCK_DGRAM).connect_ex(('192.0.2.1', 53))",
    }
    assert await value(executor, codes[family]) != 0
    if family != "udp":
        assert await value(unprotected, codes[family]) == 0


@pytest.mark.smoke
@pytest.mark.needs("own network")
async def test_there_is_no_interface_but_an_own_loopback(executor):
    assert await value(executor, "import socket; [name for _, name in socket.if_nameindex()]") in ([], ["lo"])
    assert (
        await value(executor, "len(open('/proc/net/unix').readlines()) + len(open('/proc/net/tcp').readlines())") == 2
    )


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/usr",
        "/usr/bin",
        "/etc",
        "/etc/passwd",
        "/dev",
        "/proc",
        "/opt",
        "/opt/sandfleet/_sandfleet_worker",
        "/opt/sandfleet/sandfleet_rules",
        "/bin",
        "/lib",
    ],
)
@pytest.mark.attack("writes outside of the workspace", "refused", control="in it")
async def test_the_root_and_its_parts_cannot_be_written(executor, unprotected, path):
    code = (
        "import os\n"
        f"def can(path):\n    if os.path.isfile(path):\n        try: open(path, 'a').close()\n        except OSError: return False\n        return True\n"
        "    try: os.mkdir(path + '/made-by-a-test')\n    except OSError: return False\n    os.rmdir(path + '/made-by-a-test')\n    return True\n"
        f"can({path!r})"
    )
    assert await value(executor, code) is False
    # Control: the same code can where it may.
    assert await value(executor, code.replace(repr(path), "'/tmp'")) is True
    assert await value(executor, code.replace(repr(path), "'/workspace'")) is True


@pytest.mark.smoke
@pytest.mark.attack("looks for a folder of the host that it may write", "none is there")
async def test_every_folder_that_can_be_written_is_the_sandbox_s_own(executor, unprotected):
    code = "import subprocess\nsubprocess.run('find / -xdev -type d -writable 2>/dev/null | grep -v ^/proc/ | sort', shell=True, capture_output=True).stdout.decode().split()"
    assert set(await value(executor, code)) <= {"/tmp", "/workspace", "/dev/shm"}
    if "own uid" in executor.host.traits:
        assert await value(unprotected, "import os; os.access('/usr', os.W_OK)") is True


@pytest.mark.attack("changes its interpreter", "refused")
async def test_the_interpreter_of_user_code_cannot_be_changed(executor):
    code = "import os, sys, json, IPython\n[os.access(os.path.dirname(m), os.W_OK) for m in (sys.executable, json.__file__, IPython.__file__)]"
    assert await value(executor, code) == [False, False, False]


@pytest.mark.parametrize(
    "command",
    [
        "mount -t tmpfs none /mnt",
        "mount -t tmpfs none /tmp",
        "mount -o remount,rw /",
        "mount -o remount,rw /usr",
        "mount --bind /tmp /etc",
        "umount /proc",
        "umount /usr",
        "unshare -m true",
        # Where the remount is refused, and where it is not but nothing of it can be written.
        pytest.param("unshare -Urm mount -o remount,rw /usr", marks=pytest.mark.needs("locked mounts")),
        "unshare -Urm sh -c 'mount -o remount,rw /usr; touch /usr/made-by-a-test'",
        "unshare -Urm umount -l /usr",
        "unshare -Urmpf --mount-proc cat /proc/1/root/etc/shadow",
        "nsenter -t 1 -m true",
        "nsenter -t 1 -U true",
        "python3 -c 'import os; os.chroot(\"/tmp\")'",
        "mknod /tmp/disk b 8 0",
        "mknod /tmp/mem c 1 1",
        "hostname stolen",
        "date -s 2001-01-01",
        "echo 1 > /proc/sys/kernel/panic",
        "echo core > /proc/sys/kernel/core_pattern",
        "echo 1 > /proc/sys/vm/drop_caches",
        "echo b > /proc/sysrq-trigger",
        "echo 0 > /proc/1/oom_score_adj",
        "mkdir /sys/fs/cgroup/pids/made-by-a-test",
        "cat /dev/mem /dev/kmem /dev/sda /dev/vda",
        "head -c 1 /proc/kcore",
        "head -c 1 /dev/kmsg",
        "cat /etc/shadow /etc/sudoers /etc/machine-id",
        "chown 0:0 /workspace",
        "python3 -c 'import os; os.setuid(0)'",
        "python3 -c 'import os; os.setgroups([0])'",
    ],
)
@pytest.mark.attack("works as the machine's administrator", "refused")
async def test_privileged_work_fails(executor, command):
    result = await executor.sandbox.commands.run(command, timeout=30)
    assert result.outcome is Outcome.ERROR, result
    assert result.exit_code not in (0, 127), result


@pytest.mark.attack("makes a user namespace of its own", "nothing of the host")
async def test_a_nested_user_namespace_gives_nothing_of_the_host(executor):
    line = "unshare -Ur sh -c 'id -u; cat /etc/shadow; touch /usr/x; ls /root; kill -9 1; mount -t proc proc /proc' 2>&1; true"
    said = (await executor.sandbox.commands.run(line, timeout=30)).stdout
    assert "root:" not in said
    assert (await executor.sandbox.run_code("1 + 1")).text == "2"


async def status(executor, source):
    fields = {"NoNewPrivs", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "Uid", "Gid", "Groups", "Seccomp"}
    if source == "cell":
        text = (await executor.sandbox.run_code("print(open('/proc/self/status').read())")).logs.stdout
    else:
        text = (await executor.sandbox.commands.run("cat /proc/self/status")).stdout
    lines = dict(line.split(":", 1) for line in text.splitlines() if line)
    return {name: lines[name].split() for name in fields & set(lines)}


@pytest.mark.parametrize("source", ["cell", "command"])
@pytest.mark.attack("gains a capability", "none")
async def test_no_capability_and_no_way_to_gain_one(executor, unprotected, source):
    found = await status(executor, source)
    # A pod's container has it as a whole, and gVisor does not show it.
    shown = "no_new_privs of its own" in executor.host.traits
    assert not shown or found["NoNewPrivs"] == ["1"]
    # gVisor has no ambient set.
    for name in ("CapInh", "CapPrm", "CapEff", *(["CapAmb"] if shown else [])):
        assert int(found[name][0], 16) == 0, name
    assert set(found["Uid"]) == {"1000"}
    assert "0" not in found["Groups"]
    assert not shown or (await status(unprotected, source))["NoNewPrivs"] == ["0"]


@pytest.mark.attack("gains rights by a setuid program", "none")
async def test_setuid_programs_gain_nothing(executor):
    line = "find /usr/bin /bin -perm -4000 2>/dev/null | head -1; su -c id root </dev/null; cp /usr/bin/id /tmp/id; chmod 4755 /tmp/id; /tmp/id -u"
    result = await executor.sandbox.commands.run(line, timeout=30)
    assert result.stdout.split()[-1] == "1000"
    assert "uid=0" not in result.stdout


# What the same code does where root runs it without a session; nothing of it stays.
WITHOUT = {
    "changes its interpreter": "import json, os; os.access(os.path.dirname(json.__file__), os.W_OK)",
    "works as the machine's administrator": "import os, subprocess; subprocess.run(['unshare', '-m', 'sh', '-c', 'mount -t tmpfs none /mnt && mknod /tmp/made-by-a-test c 1 3 && rm /tmp/made-by-a-test && cat /etc/shadow'], capture_output=True).stdout.startswith(b'root:')",
    "makes a user namespace of its own": "import subprocess; b'root:' in subprocess.run(['unshare', '-Ur', 'cat', '/etc/shadow'], capture_output=True).stdout",
    "gains rights by a setuid program": "import subprocess; subprocess.run('cp /usr/bin/id /tmp/id-by-a-test && chmod 4755 /tmp/id-by-a-test && setpriv --reuid 65533 --regid 65533 --clear-groups /tmp/id-by-a-test -u; rm /tmp/id-by-a-test', shell=True, capture_output=True).stdout == b'0\\n'",
    "looks for names and shared memory of the host": f"import os; os.uname().nodename == {os.uname().nodename!r}",
}  # fmt: skip


@pytest.mark.needs("own uid")
@pytest.mark.parametrize("attack", WITHOUT)
@pytest.mark.control(*WITHOUT)
async def test_without_a_session_the_same_works(unprotected, attack):
    assert await value(unprotected, WITHOUT[attack]) is True


@pytest.mark.smoke
async def test_no_core_is_dumped(executor):
    line = "cd /workspace && ulimit -c; ulimit -c unlimited 2>/dev/null; bash -c 'kill -SEGV $$'; ls -a | grep -c core; true"
    result = await executor.sandbox.commands.run(line)
    assert result.stdout.split() == ["0", "0"]


@pytest.mark.attack("raises its limits", "refused", control="in it")
async def test_limits_cannot_be_raised(executor):
    code = (
        "import resource\ndef raise_it(kind):\n    hard = resource.getrlimit(kind)[1]\n"
        "    try: resource.setrlimit(kind, (hard + 1, hard + 1))\n    except (ValueError, OSError): return False\n    return True\n"
        "[raise_it(kind) for kind in (resource.RLIMIT_NPROC, resource.RLIMIT_AS, resource.RLIMIT_CORE, resource.RLIMIT_NOFILE)]"
    )
    assert await value(executor, code) == [False] * 4
    # Control: it may lower one, and raise it again up to what it is.
    code = "import resource as r\nhard = r.getrlimit(r.RLIMIT_NOFILE)[1]\nfor soft in (99, hard): r.setrlimit(r.RLIMIT_NOFILE, (soft, hard))\nr.getrlimit(r.RLIMIT_NOFILE)[0] == hard"
    assert await value(executor, code) is True


@pytest.mark.attack("looks for names and shared memory of the host", "none is seen")
async def test_names_and_shared_memory_of_the_host_are_not_seen(executor):
    assert await value(executor, "import os; os.uname().nodename") == "sandbox"
    # Its first line is a heading; gVisor has no such file.
    listed = "import os; path = '/proc/sysvipc/shm'; len(open(path).readlines()[1:]) if os.path.exists(path) else 0"
    assert await value(executor, listed) == 0
    own = await value(
        executor, "import os; {name: os.readlink(f'/proc/self/ns/{name}') for name in os.listdir('/proc/self/ns')}"
    )
    host = executor.namespaces()
    assert executor.host.separated <= {name for name in own if own[name] != host[name]}


@pytest.mark.needs("own uid")  # only root can give each sandbox one
async def test_two_sandboxes_are_two_users_to_the_machine(executor, starting):
    async with starting() as other:
        code = "import os; os.stat('/workspace').st_uid"
        assert await value(executor, code) == await value(other, code) == 1000
        maps = [await value(each, "open('/proc/self/uid_map').read().split()") for each in (executor, other)]
        assert maps[0][1] != maps[1][1]


async def test_what_is_promised_is_what_is_described(executor, unprotected):
    description = await executor.open("session")
    network = {"network"} & {trait.removeprefix("own ") for trait in executor.host.traits}
    assert set(description.separations) >= {"pid", "mount", "ipc", "uts", "user"} | network
    assert description.session_id == "session"
    assert list((await unprotected.open("session")).separations) == []
