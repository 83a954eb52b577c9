"""Options of the calls that have many: each is declared and described here once.

A call takes them as keyword arguments: `sandbox.run_code("x", timeout=5)`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict

if TYPE_CHECKING:
    from os import PathLike

    from sandfleet.values.egress import Egress, Header
    from sandfleet.values.execution import Context, OnClear, OnFailure, OnInput, OnResult, OnText
    from sandfleet.values.fleet import EgressWord, OnQueued
    from sandfleet.values.reviews import OnReview
    from sandfleet.values.sandbox import Isolation, Limits
    from sandfleet.values.suspension import OnPreempted, Snapshot
    from sandfleet.values.tools import AnyTool, ToolPolicy
    from sandfleet.values.variables import Autosave

# Text that names a file, or goes to a program as its argument: it may have bytes that are no UTF-8 (`os.fsdecode`).
FileText = Annotated[str, "file"]
# A number whose call says itself which ones it takes.
AnyNumber = Annotated[int, "any"]

# Seconds.
DEFAULT_LEASE = 300.0
DEFAULT_MAX_WAIT = 60.0
DEFAULT_RPC_TIMEOUT = 30.0


class CreateOptions(TypedDict, total=False):
    """Options of `Sandbox.create`.

    pool            take the sandbox from this pool; "" means any pool of the template, or a cold start without a pool.
    namespace       the sandbox's namespace on Kubernetes; None means the fleet's default: SANDFLEET_SANDBOX_NAMESPACE,
                    else this pod's own, else the namespace of kubectl's current context.
    name            the name of the CodeSandbox; "" generates one. A claim with a name costs the fleet one more write.
    contract        "autonomous", "brokered" or "reviewed", if the template allows it; "" means the template's first.
                    In a reviewed sandbox nothing runs before a reviewer has approved it.
                    In a brokered sandbox code calls `tools` of this process, and reaches nothing else.
    tools           functions of this process, and MCP servers, whose tools the code calls, as `serve_tools` has them;
                    they ask for the contract `brokered`.
    tool_policy     decides about each call of them, as of `serve_tools`.
    on_tool_ask     decides about calls for which the policy wants a person asked, as `on_ask` of `serve_tools`; without
                    it they wait as reviews.
    tool_calls_file keeps what this process knows of their calls, as `calls_file` of `serve_tools`.
    skills          a `SkillLibrary`, or its folder: what it offers is copied in, and code imports it as `skills.NAME`.
    egress          hosts that the sandbox may reach by name (on a cluster, of its template): ["packages.example.com",
                    "*.example.org:443"], or an `Egress`, such as `Egress.packages("python")`. "none": the sandbox
                    reaches nothing. "template" or None: it reaches what its template allows; `bound` says what was
                    known at the claim, `get_info().egress` what is known now.
    credentials     host of `egress` → `Header`: secrets that are put into requests to it outside of the sandbox.
    timeout         the lease in seconds, 300 by default; renewed at half of it as `keep_alive` says.
    idle_timeout    the sandbox ends after so many seconds without a call; None means never.
    on_idle         "end" it then, or "suspend" it, or suspend it into a "snapshot". A call of the object that has made
                    it resumes it, and waits for that.
    on_timeout      the same when its lease is over: what runs then is ended. A sandbox whose lease this process renews
                    for as long as its object lives (see `keep_alive`) gets there only after that.
    recovery        what a session goes on with whose executor is lost: "workspace", its files, or "snapshot", its last
                    automatic snapshot: files, variables and services of one moment. The next cell is told what is
                    undone (notice WentBack). Where the fleet is lost as well, `resume` takes it on from there.
    snapshot_period seconds between two automatic snapshots of a session that is used; 300 by default, 1 at least,
                    on a cluster 60.
    envs            environment variables of all code in the sandbox; `env` is the same.
    cwd             where contexts, commands and terminals of this object begin, from /workspace on; it is made where it
                    is missing. Paths that a call names begin at /workspace as ever.
    mounts          folders of the workspace that code also finds at other paths, beside the template's: ["/app"] mounts
                    /workspace/app at /app, {"/app": "src"} mounts /workspace/src, {"/app": "."} the whole workspace.
                    On one machine also folders of it, to read alone: {"/data": "./big"}, or "../big", "~/big",
                    "/srv/big".
    image           the root that code has and may change, in the place of the sandbox's own. On one machine a folder
                    ("./rootfs"), an archive ("image.tar") or a reference ("debian:12"). Both are unpacked once, by
                    buildah. Its variables count where `envs` has none. What code changes in it, outside of
                    /workspace, ends with the sandbox. On a cluster a reference that the template lists in `images`;
                    no warm sandbox has it, so that it takes a cold start.
    user            with `image`, on one machine: who code is, a name or a number; None means whom the image names.
    queue           wait in this queue and use its quota; "" means the queue "default" where there is one, else none.
    priority        a priority class of the queue; "" means its last.
    labels          labels of the sandbox, for `list`.
    limits          limits below the template's: a `Limits`, or in plain words {"memory": "4Gi", "cpus": 2,
                    "disk": "1Gi", "processes": 64, "timeout": 60}, with its other fields by their names.
    memory          short for `limits=Limits(memory_bytes=…)`: bytes, or a text as "4Gi" or "500M".
    cpus            short for `limits=Limits(cpus=…)`: processors that all code together may keep busy.
    isolation       refuse weaker isolation; None means the value of SANDFLEET_ISOLATION, else a namespace (gVisor is
                    stronger).
    workspace_id    start on this workspace of a released sandbox (`SandboxInfo.workspace_id`); takes a cold start.
    keep_workspace  keep the workspace after the release, so that it can be claimed again; otherwise an older kept
                    workspace is deleted as well.
    snapshot        begin with a `Snapshot`, its id, or the newest one of this name: its files, variables and services.
                    `restoration` says what came back. Contract and limits are those of the snapshot unless given here;
                    they may be narrower, never wider.
    max_wait        seconds to wait for a free sandbox, and for a fleet that does not answer, 60 by default. On
                    Kubernetes a claim whose connection breaks is sent again with the same request id. So is a claim
                    that the fleet refuses for now, as QueueFull, when it says, and a random part later.
    on_queued       called with a `Queued` (position, eta in seconds, reason, message) whenever the place in the queue
                    changes, and awaited if it returns an awaitable. In the sync class it runs in the thread that called
                    `create`, so it may use other sandboxes and cannot deadlock. An exception that it raises is raised
                    by `create`, and the claim is undone.
    on_review       called with a `Review` of each request that waits in a reviewed sandbox, and of each call of a tool
                    about which the policy wants a person asked; it returns
                    `review.approve()`, `review.edit(code)` or `review.deny(reason)`, or None to leave the request to
                    another reviewer. A plain function runs in a thread, and may ask a person. What it raises is logged,
                    and the request waits on. This program has to be a reviewer of the fleet.
    on_preempted    called with a `Preemption` when this object hears that the session is preempted: its queue had
                    borrowed its quota, and the owner of the quota needs it. Calls wait until it is resumed. It is
                    called in the thread of the client's event loop, and is not to block.
    keep_alive      True renews the lease until `close`, False never. None means while this object runs something; as a
                    context manager, and in this process's own fleet, as long as the object lives.
    autosave        save the variables of Python contexts after each cell: they come back after a crash, or on another
                    executor.
    request_id      the same id, for the same namespace and pool, gives the same sandbox while that lives; None
                    generates one.
    rpc_timeout     seconds for one call over the network, 30 by default.
    """

    pool: str
    namespace: str | None
    name: str
    contract: Literal["", "autonomous", "brokered", "reviewed"]
    tools: Sequence[AnyTool]
    tool_policy: ToolPolicy | None
    on_tool_ask: ToolPolicy | None
    tool_calls_file: str | PathLike[str] | None
    skills: str | PathLike[str]
    egress: Egress | Sequence[str] | EgressWord | None
    credentials: Mapping[str, Header] | None
    timeout: float
    idle_timeout: float | None
    on_idle: Literal["end", "suspend", "snapshot"]
    on_timeout: Literal["end", "suspend", "snapshot"]
    recovery: Literal["workspace", "snapshot"]
    snapshot_period: float
    envs: Mapping[str, str] | None
    env: Mapping[str, str] | None
    cwd: FileText
    mounts: Mapping[str, str] | Sequence[str] | None
    image: str
    user: int | str | None
    queue: str
    priority: str
    labels: Mapping[str, str] | None
    limits: Limits | Mapping[str, str | float] | None
    memory: str | int | None
    cpus: float | None
    isolation: Isolation | Literal["none", "namespace", "gvisor"] | None
    workspace_id: str
    keep_workspace: bool
    snapshot: str | Snapshot
    max_wait: float
    on_queued: OnQueued | None
    on_preempted: OnPreempted | None
    on_review: OnReview | None
    keep_alive: bool | None
    autosave: bool | Autosave
    request_id: str | None
    rpc_timeout: float


class ManyOptions(CreateOptions, total=False):
    """Options of `Sandbox.create_many`: those of `create`, of which no two sandboxes can share a name or a workspace.

    gang  wait in the queue as one: none takes quota or a sandbox before there is enough for all.
    """

    gang: bool


class ResumeOptions(TypedDict, total=False):
    """Options of `resume`.

    max_wait     how long to wait for a place and for the start, in seconds: 60 by default.
    on_queued    called when the place in the queue changes, and awaited if it returns an awaitable.
    on_preempted as of `create`.
    timeout      the lease that renewals ask for, in seconds; None means as at the claim.
    keep_alive   as of `create`.
    autosave     as of `create`.
    rpc_timeout  seconds for one call over the network, 30 by default.
    """

    max_wait: float
    on_queued: OnQueued | None
    on_preempted: OnPreempted | None
    timeout: float | None
    keep_alive: bool | None
    autosave: bool | Autosave
    rpc_timeout: float


class ExplainOptions(TypedDict, total=False):
    """Options of `Fleet.explain`: the claim that is not made. They mean what they mean for `create`.

    template  "" means the pool's, or "python" without a pool.
    pool      "" means any pool of the template.
    queue     "" means the queue "default" where there is one.
    priority  a priority class of the queue; "" means its last.
    """

    template: str
    pool: str
    queue: str
    priority: str


class ListenOptions(TypedDict, total=False):
    """Callbacks of a cell.

    on_stdout, on_stderr, on_result  called with each piece as it comes, and awaited if they return an awaitable.
    on_clear  the same, called when the code clears its output (`clear_output`).
    on_input  called with an `InputRequest` where the code waits for a line of input, and returns the line, or None to
              refuse it: `on_input=input` asks at the terminal. A plain function runs in a thread. Without it code that
              asks gets an error at once. What it raises refuses the input, and is raised when the cell has ended.
    """

    on_stdout: OnText | None
    on_stderr: OnText | None
    on_result: OnResult | None
    on_clear: OnClear | None
    on_input: OnInput | None


class CodeOptions(ListenOptions, total=False):
    """Options of `run_code`.

    language      "python", "bash", "javascript" or "sql": each has a default context, which is created at its first use
                  (None: Python's). "py", "sh", "js" and "ts" are short for them. With a `context`, its language has to
                  be this one.
    context       the context to run in: its variables last from one cell to the next. None means the default context.
    timeout       deadline in seconds from the start of the run; None means the sandbox's default. 0 means none,
                  which is refused unless the sandbox's longest timeout is 0; the lease still ends it.
    on_stdout, on_stderr, on_result  called with each piece as it comes, and awaited if they return an awaitable.
                  A result whose `is_update` is set replaces the earlier ones of its `display_id`.
    on_clear      called when the code clears its output; with `wait` set it does so when the next output comes.
    on_input      as of `ListenOptions`: gives the lines for which the code waits. The deadline counts meanwhile.
    envs          environment variables of this cell.
    output_limit  bytes of each stream that are kept (head and tail); None means the sandbox's default.
    execution_id  1 to 64 characters of [A-Za-z0-9._-], unique in the sandbox; None generates one. The same call with
                  the id of an earlier execution returns that execution's result and runs nothing.
    on_failure    what happens to the variables when the code raises: "keep" (default), or "rollback" to their values
                  before the cell. A cell that is killed, or that ends its interpreter, is always rolled back:
                  `Execution.rollback` says how.
    intent        why it is to run, for the reviewers of a reviewed sandbox; cut after 2,000 bytes. None means what the
                  block `with sandfleet.intent(text)` around the call says.
    check         raise ExecutionFailed unless it ends well, as `Execution.raise_for_error` does.
    rows          so many rows of each frame that it shows come along as data, 10,000 at most: `Result.rows`. The table
                  that pandas shows as text and HTML leaves out the middle of long frames.
    """

    check: bool
    rows: int
    language: str | None
    context: str | Context | None
    timeout: float | None
    envs: Mapping[str, str] | None
    output_limit: int | None
    execution_id: str | None
    on_failure: OnFailure | Literal["keep", "rollback"]
    intent: str | None


class ContextOptions(TypedDict, total=False):
    """Options of `create_context`.

    language  "python" (default), "bash", "javascript" or "sql".
    cwd       working directory, relative to /workspace.
    envs      environment variables of the context.
    autosave  save its variables after each cell; None means as the sandbox does.
    """

    language: str
    cwd: str
    envs: Mapping[str, str] | None
    autosave: bool | Autosave | None


class LookOptions(TypedDict, total=False):
    """Options of `complete` and `inspect`. Nothing in the context changes: a fork of it answers.

    context       the context to ask; None means the default one of Python.
    detail_level  of `inspect`: 0 for signature and documentation, 1 for the source too.
    timeout       seconds, at most 10; None means 2.

    They raise PreconditionFailed (reasons ContextBusy: a cell runs or waits; LanguageCannot: its language
    cannot), NotFoundError, InvalidArgument, LimitReached (too many at once), and SandboxError with the reason NoAnswer
    when it takes too long.
    """

    context: str | Context | None
    detail_level: int
    timeout: float | None


class RunOptions(TypedDict, total=False):
    """Options of `commands.run`.

    cwd           working directory, relative to /workspace.
    envs          environment variables of this command.
    timeout       deadline in seconds; None means the sandbox's default. 0 means none, as for `run_code`.
    stdin         bytes or str: written to standard input, which is then closed. True: standard input stays open for the
                  handle's `send_stdin`. None: /dev/null.
    merge_output  standard error goes into standard output, in the order of writing.
    on_stdout, on_stderr  called with each piece of text as it comes, and awaited if they return an awaitable.
    output_limit  bytes of each stream that are kept (head and tail); None means the sandbox's default.
    execution_id  1 to 64 characters of [A-Za-z0-9._-], unique in the sandbox; None generates one.
    intent        why it is to run, as of `run_code`.
    """

    cwd: FileText
    envs: Mapping[str, str] | None
    timeout: float | None
    stdin: bytes | str | bool | None
    merge_output: bool
    on_stdout: OnText | None
    on_stderr: OnText | None
    output_limit: int | None
    execution_id: str | None
    intent: str | None
