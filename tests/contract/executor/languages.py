"""The same few things said in each language, for what holds of all of them. A new language is one more entry."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Language:
    """`{}` in a snippet is a word of letters, digits, dots and slashes."""

    name: str
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
    end="exit 0",
    end_with_3="exit 3",
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
LANGUAGES = (PYTHON, BASH)
