"""Programs that people run do their work inside of the walls; a tracer does not."""

import re

import pytest
from sandfleet import Outcome

pytestmark = pytest.mark.asyncio(loop_scope="session")

THREADS = """
import concurrent.futures, multiprocessing, threading
def square(number): return number * number
if __name__ == '__main__':
    with multiprocessing.Pool(2) as pool: print(sum(pool.map(square, range(100))))
    with concurrent.futures.ThreadPoolExecutor(8) as pool: print(sum(pool.map(square, range(100))))
    from multiprocessing import shared_memory
    block = shared_memory.SharedMemory(create=True, size=4096); block.buf[0] = 7; print(block.buf[0]); block.close(); block.unlink()
"""
ASYNCIO = """
import asyncio
async def main():
    server = await asyncio.start_server(lambda r, w: w.close(), '127.0.0.1', 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    print(await reader.read() == b'')
    child = await asyncio.create_subprocess_exec('echo', 'child', stdout=-1)
    print((await child.communicate())[0].decode())
asyncio.run(main())
"""
HELLO_C = '#include <pthread.h>\\n#include <stdio.h>\\nvoid *f(void *a){puts("thread");return 0;}\\nint main(){pthread_t t;pthread_create(&t,0,f,0);pthread_join(t,0);return 0;}'
HELLO_GO = (
    'package main\\nimport "fmt"\\nfunc main() { c := make(chan int); go func() { c <- 42 }(); fmt.Println(<-c) }'
)
HELLO_RUST = 'use std::thread; fn main() { println!("{}", thread::spawn(|| 42).join().unwrap()); }'
HELLO_JAVA = "class A { public static void main(String[] a) throws Exception { Thread t = new Thread(() -> System.out.println(42)); t.start(); t.join(); } }"
# Program → what is run, and what of its output shows that it did its work.
PROGRAMS = {
    "git": ("git init -q r && cd r && git config user.email a@b && git config user.name a && echo 1 > f && git add f && git commit -qm one && git clone -q . ../copy && git -C ../copy log --oneline && git gc -q && git fsck", "one"),
    "node": ("node -e 'const {Worker} = require(\"worker_threads\"); new Worker(\"console.log(6*7)\", {eval: true}); require(\"fs\").promises.readdir(\"/\").then(d => console.log(d.includes(\"usr\")))'", "42"),
    "npm": ("npm init -y && npm pkg get name", "home"),
    "gcc": (f"printf '{HELLO_C}' > a.c && gcc -O1 -pthread a.c -o a && ./a", "thread"),
    "g++": ("echo 'int main(){return 0;}' > b.cc && g++ b.cc -o b && ./b && echo compiled", "compiled"),
    "make": ("printf 'all: x y\\n\\t@echo done $^\\nx y:\\n\\t@touch $@\\n' > Makefile && make -j4", "done x y"),
    "cmake": ("printf 'cmake_minimum_required(VERSION 3.10)\\nproject(p C)\\nadd_executable(p p.c)\\n' > CMakeLists.txt && echo 'int main(){return 0;}' > p.c && cmake -S . -B o > /dev/null && cmake --build o && o/p && echo built", "built"),
    "tar": ("mkdir d && echo 1 > d/f && tar -cz d | tar -tz", "d/f"),
    "curl": ("python3 -m http.server 7211 --bind 127.0.0.1 & until curl -so /dev/null http://127.0.0.1:7211/; do sleep 0.1; done; curl -s http://127.0.0.1:7211/ | head -1; kill %1", "DOCTYPE"),
    "wget": ("python3 -m http.server 7212 --bind 127.0.0.1 & until wget -qO /dev/null http://127.0.0.1:7212/; do sleep 0.1; done; wget -qO- http://127.0.0.1:7212/ | head -1; kill %1", "DOCTYPE"),
    "perl": ("perl -e 'my $p = fork; if (!$p) { print 42; exit } waitpid $p, 0'", "42"),
    "java": (f"printf '%s' '{HELLO_JAVA}' > A.java && java -Xmx128m A.java", "42"),
    "javac": (f"printf '%s' '{HELLO_JAVA}' > A.java && javac A.java && java -Xmx128m A", "42"),
    "go": (f"printf '{HELLO_GO}' > a.go && GOFLAGS=-mod=mod GOCACHE=$PWD/c GOPATH=$PWD/g go run a.go", "42"),
    "rustc": (f"printf '%s' '{HELLO_RUST}' > a.rs && rustc a.rs && ./a", "42"),
    "cargo": ("cargo init -q --vcs none --name a . && cargo --offline build -q && target/debug/a", "Hello"),
    "ssh-keygen": ("ssh-keygen -q -t ed25519 -N '' -f key && ssh-keygen -l -f key", "ED25519"),
    "pip": ("pip --version && pip list 2>/dev/null | head -3", "pip"),
    "sqlite3": ("sqlite3 a.db 'create table t(a); insert into t values (42); select a from t'", "42"),
    "awk": ("seq 10 | awk '{s += $1} END {print s}'", "55"),
    "sed": ("echo abc > s && sed -i s/b/x/ s && cat s", "axc"),
    "zip": ("echo 1 > f && zip -q a.zip f && unzip -l a.zip", "f"),
    "xz": ("head -c 1M /dev/zero | xz -T2 | xz -d | wc -c", "1048576"),
    "gzip": ("echo text | gzip | gunzip", "text"),
    "bzip2": ("echo text | bzip2 | bunzip2", "text"),
    "zstd": ("echo text | zstd -q -T2 | zstd -qd", "text"),
    "openssl": ("openssl genrsa -out k 2048 2>/dev/null && openssl rsa -in k -check -noout", "ok"),
    "find": ("mkdir -p a/b && touch a/b/c && find . -name c", "a/b/c"),
    "jq": ("echo '{\"a\": 42}' | jq .a", "42"),
    "vim": ("printf 'one\\n' > v && vim -es -c '%s/one/two/' -c wq v; cat v", "two"),
    "tmux": ("tmux -S $PWD/socket -f /dev/null new-session -d 'echo 42 > out; sleep 1' && sleep 0.7; cat out; tmux -S $PWD/socket kill-server", "42"),
    "gpg": ("mkdir -m 700 gnupg && gpg --homedir gnupg --batch --quick-gen-key --passphrase '' a@b default default 2>&1 | tail -1; gpg --homedir gnupg -k", "a@b"),
    "busybox": ("busybox sh -c 'echo $((6*7))'", "42"),
    "bc": ("echo '6*7' | bc", "42"),
    "file": ("file /bin/sh -L", "ELF"),
    "patch": ("echo a > f && echo b > g && diff -u f g > p; patch -s f p && cat f", "b"),
    "script": ("script -qec 'tty && echo 42' /dev/null", "42"),
    "flock": ("flock lock echo 42", "42"),
    "setsid": ("setsid -w echo 42", "42"),
    "timeout": ("timeout 0.2 sleep 10; echo $?", "124"),
    "ps": ("sleep 9 & until ps -e -o comm | grep -x sleep; do sleep 0.1; done; kill %1", "sleep"),
    "ldd": ("ldd /bin/sh", "libc"),
    "python3": ("printf '%s' \"$THREADS\" > t.py && python3 t.py", "328350\n328350\n7"),
    "pytest": ("echo 'def test(): assert True' > test_a.py && python3 -m pytest -q -p no:cacheprovider test_a.py", "1 passed"),
}  # fmt: skip
MODULES = {
    "numpy": "import numpy; print(int((numpy.ones((200, 200)) @ numpy.ones((200, 200)))[0, 0]))",
    "pandas": "import pandas; frame = pandas.DataFrame({'a': range(100)}); frame.to_csv('f.csv'); print(pandas.read_csv('f.csv').a.sum())",
    "matplotlib": "import matplotlib; matplotlib.use('agg'); import matplotlib.pyplot as plot; plot.plot([1, 2]); plot.savefig('p.png'); print(open('p.png', 'rb').read(4))",
    "duckdb": "import duckdb; print(duckdb.sql('select 6 * 7').fetchall())",
    "asyncio": ASYNCIO,
    "ctypes": "import ctypes; print(ctypes.CDLL(None).getpid() > 0)",
}
SHOWN = {
    "numpy": "200",
    "pandas": "4950",
    "matplotlib": "PNG",
    "duckdb": "42",
    "asyncio": "True\nchild",
    "ctypes": "True",
}


async def run(sandbox, line, name):
    found = await sandbox.commands.run(f"command -v {name}")
    if not found.ok:
        pytest.skip(f"needs {name}, which is not installed")
    return await sandbox.commands.run(
        f"mkdir -p programs/home && cd $(mktemp -d -p programs -t home.XXXX) && {line}",
        timeout=100,
        envs={"THREADS": THREADS},
    )


@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_program_does_its_work(sandbox, name):
    line, shown = PROGRAMS[name]
    result = await run(sandbox, line, name)
    assert shown in result.stdout, result.stdout[-1000:] + result.stderr[-2000:]


@pytest.mark.parametrize("name", MODULES)
async def test_a_module_of_python_does_its_work(sandbox, name):
    if not (await sandbox.commands.run(["python3", "-c", f"import {name}"])).ok:
        pytest.skip(f"needs {name}, which is not installed")
    result = await sandbox.commands.run(["python3", "-c", MODULES[name]], timeout=100)
    assert SHOWN[name] in result.stdout, result.stderr


@pytest.mark.parametrize("line", ["strace -f true", "gdb -batch -ex run -ex 'info registers' true", "perf stat true"])
@pytest.mark.attack("traces a program", "refused")
@pytest.mark.needs("no_new_privs of its own")
async def test_a_tracer_is_refused(sandbox, line):
    result = await run(sandbox, line, line.partition(" ")[0])
    assert re.search("not permitted|denied|no permission", result.stderr, re.IGNORECASE), result


@pytest.mark.parametrize("line", ["strace -f true"])
@pytest.mark.control("traces a program")
async def test_without_a_session_a_tracer_works(unprotected, line):
    result = await run(unprotected.sandbox, line, line.partition(" ")[0])
    assert result.outcome is Outcome.OK
    assert "execve(" in result.stderr
