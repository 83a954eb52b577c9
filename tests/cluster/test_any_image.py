"""Images that know nothing of the executor (tests/images), in gVisor pods, through operator, fleet and client."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Iterator

import pytest
from cluster.access_bed import an_agent
from cluster.egress_bed import Bed
from cluster.fixtures import helm_of
from cluster.harness.testing import Cluster
from cluster.operators import RESTRICTED_LABELS, Sandboxes, template
from cluster.releases import IMAGE, SANDBOX_IMAGE, Release
from sandfleet import AsyncSandbox
from sandfleet._fleets import port_forward
from sandfleet.errors import ClaimError

pytestmark = [pytest.mark.usefixtures("kinds"), pytest.mark.timeout(300)]
BUNDLE = "/opt/sandfleet"
POD = f"{BUNDLE}/pod"
# What root of a session tries; each way that works prints a word.
ATTACKS = f"""
umount {POD} && echo umount
mount -t tmpfs none /mnt && echo mount
unshare -m true && echo mounts
mknod /root/disk b 8 0 && echo device
touch {POD}/x && echo written
touch {BUNDLE}/x && echo bundle
ls -A {POD} | grep . && echo seen
ls /proc/1/root/opt && echo root
cat /proc/1/environ && echo environ
unshare -Urm bash -c "umount {POD} && echo nested; umount -l {POD} && echo lazy; ls -A {POD} | grep ."
unshare -Urm bash -c "mount --bind {BUNDLE} /mnt && ls -A /mnt/pod | grep . && echo bound"
unshare -Urm bash -c "mount --rbind {BUNDLE} /mnt && umount -l /mnt/pod && echo moved; ls -A /mnt/pod | grep ."
chroot /proc/1/root ls {POD} && echo chroot
echo done
"""
TASK, STATIC = "localhost/sandfleet-task:dev", "localhost/sandfleet-static:dev"
ABSENT = "localhost/sandfleet-task:absent"


@pytest.fixture(scope="module")
def bed(images: Cluster, kinds, program, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    suffix = secrets.token_hex(4)
    home, work, strict = (f"image-{name}-{suffix}" for name in ("home", "work", "strict"))
    for name, labels in ((home, {}), (work, {}), (strict, RESTRICTED_LABELS)):
        images.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    release = Release(images, helm_of(images, program("helm"), tmp_path_factory.mktemp("image")), f"i-{suffix}", home)
    values = f"settings.watchNamespaces={{{work},{strict}}},crds.enabled=false,admissionPolicy.enabled=false"
    try:
        release.install(*IMAGE, *SANDBOX_IMAGE, "--set", values, "--wait")
        for one in (
            template(work, "task", image=TASK),
            template(work, "as-dev", image=TASK, user="4321"),
            template(work, "generic", images=["localhost/sandfleet-task:*"], user="root"),
            template(work, "misfit", image="localhost/sandfleet-executor:dev", executor="Beside"),
            template(strict, "task", image=TASK),
            template(strict, "static", image=STATIC, user="1234"),
        ):
            images.api.create(one)
        for name in (work, strict):
            for one in an_agent(name):
                images.kubectl("apply", "-f", "-", given=json.dumps(one))
        # The restricted namespace is the bed's second one.
        yield Bed(release, work, strict)
        for name in (work, strict):
            images.kubectl("delete", "csb", "--all", "-n", name)
        images.api.wait("the pods to be gone", lambda: not images.api.list("Pod", work), 60)
        release.uninstall()
    finally:
        for name in (work, strict, home):
            images.api.delete("Namespace", name)


@pytest.fixture
async def created(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator:
    """Makes a sandbox of a template."""
    for name, value in bed.environment.items():
        monkeypatch.setenv(name, value)
    made: list[AsyncSandbox] = []

    async def create(name: str, namespace: str = bed.work, **options) -> AsyncSandbox:
        made.append(await AsyncSandbox.create(name, namespace=namespace, max_wait=90, **options))
        return made[-1]

    yield create
    for one in made:
        await one.kill()
    port_forward.stop()


async def test_a_task_s_image_runs_as_it_is_and_its_root_is_the_session_s(created) -> None:
    sandbox = await created("task")
    # The image's own Python, without what would have taken over the executor's.
    plain = "env -u LD_PRELOAD -u LD_AUDIT -u PYTHONHOME"
    tested = await sandbox.commands.run(f"cd /testbed && {plain} python3 -S test_task.py && echo $GREETING && id -u")
    assert tested.stdout == "passed\nhello task\n0\n", tested
    code = "import os, pandas; os.getuid(), os.environ['GREETING'], open('/testbed/task.py').readline().strip()"
    assert (await sandbox.run_code(code)).text == "(0, 'hello task', 'def double(number):')"
    # What package managers, su and daemons need.
    changed = await sandbox.commands.run(
        "touch /etc/one && chown 42:43 /etc/one && stat -c %u:%g /etc/one && useradd -m bob && su bob -c 'id -un'"
        " && rm -r /usr/share/doc && mkdir /new && mv /testbed/task.py /new/ && ls /new"
    )
    assert changed.stdout == "42:43\nbob\ntask.py\n", changed
    await sandbox.files.write("/workspace/mine", "hello")
    assert await sandbox.files.read("/etc/os-release") == (await sandbox.commands.run("cat /etc/os-release")).stdout
    assert "killed" in repr(await sandbox.run_code("import os; os.kill(os.getpid(), 9)"))
    after = "import os; open('/workspace/mine').read(), os.listdir('/new')"
    assert (await sandbox.run_code(after)).text == "('hello', ['task.py'])"


async def test_a_claim_names_an_image_and_keeps_it_when_its_pod_is_lost(created, bed: Bed) -> None:
    plain, task = await created("generic"), await created("generic", image=TASK)
    looks = "import os; os.path.exists('/testbed/task.py')"
    assert [(await one.run_code(looks)).text for one in (plain, task)] == ["False", "True"]
    await task.files.write("kept", "1")
    with pytest.raises(ClaimError, match="its template allows only localhost/sandfleet-task") as refused:
        await created("generic", image=STATIC)
    assert refused.value.reason == "ImageUnavailable"
    with pytest.raises(ClaimError, match=f"image {ABSENT} does not start: .*pull"):
        await created("generic", image=ABSENT)
    lost = (await task.get_info()).sandbox_uid
    pod = next(one for one in bed.cluster.api.list("Pod", bed.work) if one["metadata"]["uid"] == lost)
    bed.cluster.kubectl("delete", "pod", pod["metadata"]["name"], "-n", bed.work, "--wait=false")
    await until_another(task, lost)
    assert ((await task.run_code(looks)).text, await task.files.read("kept")) == ("True", "1")


async def until_another(sandbox: AsyncSandbox, uid: str) -> None:
    """Wait until another pod serves it."""
    async with asyncio.timeout(90):
        while (await sandbox.get_info()).sandbox_uid in {uid, ""}:
            await asyncio.sleep(0.2)


async def test_root_of_the_session_gets_nothing_of_the_executor(created, bed: Bed) -> None:
    sandbox = await created("task")
    secret = f"ls -A {POD}/private {POD}/keys {POD}/volume"
    # Outside of the session it is there, so a session that took its cover away would have it.
    uid = (await sandbox.get_info()).sandbox_uid
    pods = {one["metadata"]["uid"]: one["metadata"]["name"] for one in bed.cluster.api.list("Pod", bed.work)}
    outside = bed.cluster.kubectl("exec", "-n", bed.work, pods[uid], "--", f"{BUNDLE}/bin/busybox", "sh", "-c", secret)
    assert "keys.json" in outside
    assert "workspace" in outside
    tried = await sandbox.commands.run(f"bash -c '{ATTACKS}'", envs={"LD_PRELOAD": "", "LD_AUDIT": ""})
    assert tried.stdout.splitlines()[-1:] == ["done"], tried
    assert set(tried.stdout.split()) == {"done"}, tried
    capabilities = "grep -h ^Cap /proc/self/status | sort -u"
    said = (await sandbox.commands.run(capabilities)).stdout
    masks = {name: int(mask, 16) for name, mask in (line.split(":") for line in said.splitlines())}
    # Neither CAP_SYS_ADMIN nor CAP_SYS_PTRACE, for no program that it starts.
    assert not any(mask >> number & 1 for mask in masks.values() for number in (19, 21)), said
    assert masks["CapEff"] == masks["CapBnd"] != 0


async def test_a_static_program_is_enough_of_an_image_and_fits_the_level_restricted(created, bed: Bed) -> None:
    sandbox = await created("static", bed.host)
    assert (await sandbox.commands.run(["/bin/busybox", "id", "-u"])).stdout == "1234\n"
    code = "import numpy, os; os.environ['HOME'], os.environ['COLOUR'], sorted(os.listdir('/bin'))"
    assert (await sandbox.run_code(code)).text == "('/home/app', 'green', ['busybox'])"
    assert "/bin/sh" in (await sandbox.commands.run("true")).stderr
    assert (await sandbox.run_code("open('/etc/mine', 'w')")).error is not None


async def test_a_user_by_number_is_without_rights_on_an_image_of_root_s(created) -> None:
    sandbox = await created("as-dev")
    code = "import os; os.getuid(), os.environ['HOME'], os.access('/etc', os.W_OK), os.access('/workspace', os.W_OK)"
    assert (await sandbox.run_code(code)).text == "(4321, '/home/dev', False, True)"
    raised = await sandbox.commands.run("/usr/local/bin/as-root -u", envs={"LD_PRELOAD": "", "LD_AUDIT": ""})
    assert raised.stdout == "4321\n"


def test_what_cannot_be_is_said_in_words(bed: Bed) -> None:
    sandboxes = bed.sandboxes
    sandboxes.create("misfit", templateRef={"name": "misfit"})
    strict = Sandboxes(bed.cluster, bed.host)
    strict.create("root", templateRef={"name": "task"})

    def said(where: Sandboxes, name: str) -> str:
        return json.dumps(where.get(name).get("status", {}).get("conditions", []))

    bed.cluster.api.wait("the refusal of PodSecurity", lambda: "violates PodSecurity" in said(strict, "root"), 30)
    bed.cluster.api.wait("the executor's words", lambda: "to InImage" in said(sandboxes, "misfit"), 60)
    for where, name in ((sandboxes, "misfit"), (strict, "root")):
        where.delete(name)


async def test_where_no_volume_is_an_image_the_executor_is_copied(bed: Bed, created) -> None:
    values = ("--reuse-values", "--set", "settings.executor.delivery=InitContainer", "--wait")
    bed.release.upgrade(*values)

    def ending() -> bool:
        pods = bed.cluster.api.list("Pod", bed.release.namespace)
        return any("deletionTimestamp" in one["metadata"] for one in pods)

    # A leader of before the upgrade would still order the volume, and helm waits until most of the new ones are ready.
    for one in ("fleet", "operator"):
        deployment = f"deployment/{bed.release.name}-sandfleet-{one}"
        bed.cluster.kubectl("rollout", "status", deployment, "--timeout=90s", "-n", bed.release.namespace)
    bed.cluster.api.wait("the earlier pods to be gone", lambda: not ending(), 60)
    sandbox = await created("static", bed.host)
    assert (await sandbox.run_code("import os, pandas; os.getuid()")).text == "1234"
    (pod,) = bed.cluster.api.list("Pod", bed.host)
    assert [one["name"] for one in pod["spec"]["initContainers"]] == ["bring-executor"]
