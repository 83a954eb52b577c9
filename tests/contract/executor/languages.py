"""The same few things said in each language, for what holds of all of them. A new language is one more entry."""

from dataclasses import dataclass, replace

import pytest


class Cannot(str):
    """Why a language has no such thing: tests that need it are skipped, and say so."""

    __slots__ = ()


@dataclass(frozen=True)
class Language:
    """`{}` in a snippet is a word of letters, digits, dots and slashes."""

    def __getattribute__(self, name):
        value = object.__getattribute__(self, name)
        if isinstance(value, Cannot):
            pytest.skip(f"{object.__getattribute__(self, 'name')}: {value}")
        return value

    name: str
    # Begins a comment that ends with its line.
    comment: str
    say: str
    complain: str
    # Ends the cell with an error, and not the interpreter.
    fail: str
    # What `fail` is then: the reason, the error's name and the exit code.
    failure: tuple[str, str, int]
    not_the_language: str
    set_x: str
    say_x: str
    # `say_x` where x was never set.
    unset: str
    change_folder: str
    say_folder: str
    export: str
    say_variable: str
    say_own_pid: str
    write: str
    wait: str
    spin: str
    # Goes on after an interrupt.
    deaf: str
    interrupted: str
    hoard: str
    # 8 MB at least that are in use at the end.
    hold: str
    burn: str
    end: str
    # With exit code 3.
    end_with_3: str
    crash: str
    stop_itself: str
    start_daemon: str
    fork_bomb: str
    close_streams: str
    read_input: str
    say_bytes: str
    flood: str
    kill_parent: str


PYTHON = Language(
    name="python",
    comment="#",
    say="print('{}', flush=True)",
    complain="import sys; print('{}', file=sys.stderr, flush=True)",
    fail="raise ValueError('no')",
    failure=("Exception", "ValueError", 0),
    not_the_language="print('never')\nif (",
    set_x="x = '{}'",
    say_x="print(globals().get('x', 'nothing'))",
    unset="nothing\n",
    change_folder="import os; os.makedirs('{0}', exist_ok=True); os.chdir('{0}')",
    say_folder="import os; print(os.getcwd())",
    export="import os; os.environ['COLOUR'] = '{}'",
    say_variable="import os; print(os.environ.get('COLOUR', ''))",
    say_own_pid="import os; print(os.getpid())",
    write="open('{}', 'w').write('x')",
    wait="import time; time.sleep(1000)",
    spin="while True: pass",
    deaf="import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
    interrupted="KeyboardInterrupt",
    hoard="hoard = []\nwhile True: hoard.append(b'x' * (8 << 20))",
    hold="held = b'x' * (16 << 20)",
    burn="import time\nbegun = time.process_time()\nwhile time.process_time() - begun < 0.3: pass",
    end="import os; os._exit(0)",
    end_with_3="import os; os._exit(3)",
    crash="import os; os.kill(os.getpid(), 9)",
    stop_itself="import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
    start_daemon="import subprocess; print(subprocess.Popen(['setsid', 'sleep', '1000']).pid)",
    fork_bomb="import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    close_streams="import os; os.closerange(0, 800)",
    read_input="import sys; print(repr(sys.stdin.read()))",
    say_bytes="import sys; sys.stdout.buffer.write(b'a\\xff\\x00b')",
    flood="import sys\nline = 'x' * 1023 + '\\n'\nfor _ in range(64 << 10): sys.stdout.write(line)",
    kill_parent="import os; os.kill(os.getppid(), 9); print('alive')",
)

BASH = Language(
    name="bash",
    comment="#",
    say="echo '{}'",
    complain="echo '{}' >&2",
    fail="ls /is/not/there",
    failure=("ExitCode", "ExitCode", 2),
    not_the_language="if (",
    set_x="x='{}'",
    say_x='echo "${x-nothing}"',
    unset="nothing\n",
    change_folder="mkdir -p {0} && cd {0}",
    say_folder="pwd",
    export="export COLOUR={}",
    say_variable='echo "$COLOUR"',
    say_own_pid="echo $$",
    write="printf x >{}",
    wait="sleep 1000",
    spin="while :; do :; done",
    deaf="trap '' INT; while :; do :; done",
    interrupted="Interrupted",
    hoard="hoard=x; while :; do hoard=$hoard$hoard; done",
    hold="held=$(head -c 16777216 /dev/zero | tr '\\0' x)",
    burn="for ((i = 0; i < 300000; i++)); do :; done",
    end="exec true",
    end_with_3="exec bash -c 'exit 3'",
    crash="kill -KILL $$",
    stop_itself="kill -STOP $$",
    start_daemon="setsid sleep 1000 & echo $!",
    fork_bomb="bomb() { bomb | bomb & }; bomb; while :; do :; done",
    close_streams='for fd in /proc/$$/fd/*; do eval "exec ${fd##*/}>&-"; done',
    read_input='printf "\'%s\'\\n" "$(cat)"',
    say_bytes="printf 'a\\xff\\x00b'",
    flood="line=$(head -c 1023 /dev/zero | tr '\\0' x); for ((i = 0; i < 64 * 1024; i++)); do echo $line; done",
    kill_parent="kill -KILL $PPID; echo alive",
)
JAVASCRIPT = Language(
    name="javascript",
    comment="//",
    say="console.log('{}')",
    complain="console.error('{}')",
    fail="throw new TypeError('no')",
    failure=("Exception", "TypeError", 0),
    not_the_language="console.log('never')\nif (",
    set_x="var x = '{}'",
    say_x="console.log(globalThis.x ?? 'nothing')",
    unset="nothing\n",
    change_folder="require('fs').mkdirSync('{0}', {{recursive: true}}); process.chdir('{0}')",
    say_folder="console.log(process.cwd())",
    export="process.env.COLOUR = '{}'",
    say_variable="console.log(process.env.COLOUR ?? '')",
    say_own_pid="console.log(process.pid)",
    write="require('fs').writeFileSync('{}', 'x')",
    wait="await new Promise((over) => setTimeout(over, 1e6))",
    spin="while (true);",
    # It waits in the kernel.
    deaf="require('child_process').execSync('rm -f deaf; mkfifo deaf'); require('fs').openSync('deaf')",
    interrupted="Interrupted",
    hoard="hoard = []; while (true) hoard.push(Buffer.alloc(8 << 20, 1))",
    hold="held = Buffer.alloc(16 << 20, 1); undefined",
    burn="{ const begun = process.cpuUsage().user; while (process.cpuUsage().user - begun < 3e5); }",
    end="process.exit(0)",
    end_with_3="process.exit(3)",
    crash="process.kill(process.pid, 'SIGKILL')",
    stop_itself="process.kill(process.pid, 'SIGSTOP'); while (true);",
    start_daemon=(
        "daemon = require('child_process').spawn('sleep', ['1000'], {detached: true, stdio: 'ignore'});"
        " daemon.unref(); console.log(daemon.pid)"
    ),
    fork_bomb=(
        "bomb = () => { try { require('child_process').spawn('sh', ['-c', 'while :; do sh -c : & done']).on('error', () => 0) }"
        " catch {} setImmediate(bomb) }; bomb(); await new Promise(() => 0)"
    ),
    close_streams="for (const fd of [0, 1, 2]) require('fs').closeSync(fd)",
    read_input="console.log(`'${require('fs').readFileSync(0)}'`)",
    say_bytes="process.stdout.write(Buffer.from([0x61, 0xff, 0, 0x62])); undefined",
    flood="line = 'x'.repeat(1023) + '\\n'; for (let i = 0; i < 64 << 10; i++) process.stdout.write(line); undefined",
    kill_parent="process.kill(process.ppid, 'SIGKILL'); console.log('alive')",
)
TYPESCRIPT = replace(
    JAVASCRIPT,
    name="typescript",
    set_x="interface Word {{ text: string }}\nvar x: string = (('{}') as any as Word | string) as string",
)
_NO_SYSTEM = Cannot("SQL has no way to the system around it")
SQL = Language(
    name="sql",
    comment="--",
    say="COPY (SELECT '{}') TO '/dev/stdout' (HEADER false, QUOTE '');",
    complain="COPY (SELECT '{}') TO '/dev/stderr' (HEADER false, QUOTE '');",
    fail="SELECT error('no');",
    failure=("Exception", "InvalidInputException", 0),
    not_the_language="COPY (SELECT 'never') TO '/dev/stdout';\nSELEC (",
    set_x="SET VARIABLE x = '{}';",
    say_x="COPY (SELECT coalesce(getvariable('x'), 'nothing')) TO '/dev/stdout' (HEADER false, QUOTE '');",
    unset="nothing\n",
    change_folder=Cannot("its folder is the one in which the context began"),
    say_folder=_NO_SYSTEM,
    export=Cannot("it has no environment"),
    say_variable=Cannot("it has no environment"),
    say_own_pid=_NO_SYSTEM,
    write="COPY (SELECT 'x') TO '{}' (FORMAT csv);",
    wait=Cannot("it has no way to wait"),
    spin="SELECT * FROM range(1000000000000) t(x) WHERE x < 0;",
    deaf=Cannot("it has no way to ignore an interrupt"),
    interrupted="Interrupted",
    hoard="CREATE TABLE hoard AS SELECT repeat('x', 1000) || i || random() FROM range(100000000) t(i);",
    hold="CREATE OR REPLACE TABLE held AS SELECT repeat('x', 1000) || i || random() AS x FROM range(40000) t(i);",
    burn="SELECT count(*) FROM range(30000) a, range(30000) b WHERE a.range * b.range % 7 = 3;",
    end=_NO_SYSTEM,
    end_with_3=_NO_SYSTEM,
    crash=_NO_SYSTEM,
    stop_itself=_NO_SYSTEM,
    start_daemon=_NO_SYSTEM,
    fork_bomb=_NO_SYSTEM,
    close_streams=_NO_SYSTEM,
    read_input="COPY (SELECT chr(39) || coalesce(max(content), '') || chr(39) FROM read_text('/dev/stdin')) TO '/dev/stdout' (HEADER false, QUOTE '');",
    say_bytes=Cannot("its text is always UTF-8"),
    flood="COPY (SELECT repeat('x', 1023) FROM range(65536)) TO '/dev/stdout' (HEADER false);",
    kill_parent=_NO_SYSTEM,
)
LANGUAGES = (PYTHON, BASH, JAVASCRIPT, SQL, TYPESCRIPT)
