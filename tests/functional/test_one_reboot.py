"""One run of site.yml with consent to a reboot leaves no reason for another, on any machine of the recordings."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.functional.test_check_mode_per_os import keys
from tests.support import one_reboot
from tests.support.node_modules import load
from tests.support.one_reboot import REPO, System, calls, reasons

pytestmark = pytest.mark.systems

remoting: Any = load("plugins/plugin_utils/remoting.py")
SYSTEMS = {one.name: one for one in one_reboot.recorded_systems()}
PLAIN = ["debian12-xe9680", "el9-xe9680", "ubuntu2404-xe9680"]  # one of each distribution
OTHERS = [name for name in SYSTEMS if name not in PLAIN]
IN_USE = "ubuntu2404-xe9680"
"""Of which a second one, whose driver is loaded and in use, goes through the stages before the barrier."""
BEFORE = ("--tags", "preflight,base,fabric,gpu,reboot")


def driver_of(one: System, hosts: Path) -> str:
    release = yaml.safe_load(hosts.read_text())["all"]["vars"]["stack_release"]
    sets = yaml.safe_load((REPO / f"stacks/{release}.yml").read_text())["stack_data"]["sets"]
    return str(
        sets[one.system]["nvidia_driver"]["version"] or one_reboot.make.STATED[one.system]["nvidia_driver_version"]
    )


Runs = Callable[[str], tuple[Path, Path]]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Of a machine the inventory as it arrived, and that after the reboot; site.yml has been through both.

    Machines go through it together: one of each distribution, and when another one is asked for, all others.
    """
    folder = tmp_path_factory.mktemp("reboots")
    variables = keys(folder)
    done: dict[str, tuple[Path, Path]] = {}

    def of(name: str) -> tuple[Path, Path]:
        if name not in done:
            done.update(both_runs({n: SYSTEMS[n] for n in (PLAIN if name in PLAIN else OTHERS)}, folder, variables))
        return done[name]

    return of


def both_runs(systems: dict[str, System], folder: Path, variables: dict[str, Any]) -> dict[str, tuple[Path, Path]]:
    """Up to the barrier as they arrived, then the whole site after the reboot."""
    new = {n: one_reboot.arrived(one) for n, one in systems.items()}
    first = {n: one_reboot.inventory(one, folder / n, new[n], variables) for n, one in systems.items()}
    in_use = {}
    if IN_USE in systems:  # goes with the others: Ansible is loaded once for all of them
        recording = one_reboot.arrived(systems[IN_USE])
        recording["modules"]["node_state"]["contents"] |= one_reboot.loaded_driver({}, {})
        in_use["in use"] = one_reboot.inventory(systems[IN_USE], folder / "in-use", recording, variables)
    one_reboot.check(folder, {**first, **in_use}, *BEFORE)
    second = {}
    for name, one in systems.items():
        said = (first[name].parent / "said").read_text(encoding="utf-8")
        assert "failed=0" in said.partition("PLAY RECAP")[2], said[-3000:]
        after = one_reboot.rebooted(new[name], calls(first[name]), said, driver_of(one, first[name]))
        second[name] = one_reboot.inventory(one, folder / f"{name}-rebooted", after, variables)
    one_reboot.check(folder, second)
    return {**{name: (first[name], second[name]) for name in systems}, **{n: (p, p) for n, p in in_use.items()}}


def no_reason_is_left(runs: Runs, name: str) -> None:
    arrived, rebooted = runs(name)
    said = (rebooted.parent / "said").read_text(encoding="utf-8")
    assert "failed=0" in said.partition("PLAY RECAP")[2], said[-3000:]
    assert reasons(calls(arrived)), "nothing asked for the one reboot, so this proves nothing"
    assert reasons(calls(rebooted)) == {}
    if SYSTEMS[name].gpus:
        there = one_reboot.files(calls(arrived))
        assert "NVreg_DeviceFileMode=0660" in there["/etc/modprobe.d/elastic-ai-gpu-files.conf"]
        dropin = there["/etc/systemd/system/nvidia-persistenced.service.d/elastic-ai-gpu.conf"]
        assert "SupplementaryGroups=elastic-ai-gpu" in dropin, "stage gpu starts the daemon, which has its own user"


@pytest.mark.parametrize("name", PLAIN)
def test_no_reason_is_left_at_the_end_of_the_site(runs: Runs, name: str) -> None:
    no_reason_is_left(runs, name)


@pytest.mark.rest
@pytest.mark.parametrize("name", OTHERS)
def test_no_reason_is_left_on_any_other_recorded_machine(runs: Runs, name: str) -> None:
    no_reason_is_left(runs, name)


def test_a_driver_with_other_device_files_asks_for_a_reboot_before_the_barrier(runs: Runs) -> None:
    """Loaded with its default mode, and in use: the reason stands before the barrier, where it is heeded."""
    runs(IN_USE)
    hosts, _ = runs("in use")
    assert "opens device files" in reasons(calls(hosts))["remoting_server"]


def stages() -> list[str]:
    """The playbooks of site.yml in order."""
    return [
        str(play["ansible.builtin.import_playbook"])
        for play in yaml.safe_load((REPO / "playbooks/site.yml").read_text())
    ]


def imported(plays: list[one_reboot.Json]) -> set[str]:
    """Roles that plays go through as a whole."""
    tasks = [task for play in plays for task in play.get("tasks") or []]
    return {task["ansible.builtin.import_role"]["name"] for task in tasks if "ansible.builtin.import_role" in task}


def roles_of(stage: str) -> set[str]:
    """Roles, and tasks of roles as ROLE/TASKS, that a playbook goes through."""
    text = (REPO / "playbooks" / stage).read_text()
    found = imported(yaml.safe_load(text))
    pairs = re.findall(r"include_role:\s+name: (\w+)(?:\s+tasks_from: (\w+))?", text)
    return found | {f"{role}/{tasks}" if tasks else role for role, tasks in pairs}


def reached(role: str, start: str) -> set[str]:
    """Task files of a role that one of its task files leads to, by include."""
    todo, found = [start], set()
    while todo:
        path = REPO / f"roles/{role}/tasks/{todo.pop()}.yml"
        if path.is_file() and path.name not in found:
            found.add(path.name)
            todo += re.findall(r"(?:include|import)_tasks: \"?([a-z_]+)\.yml", path.read_text())
    return found


def test_whoever_asks_for_a_reboot_does_it_before_the_barrier() -> None:
    """Each role that has a reason to write is gone through, with the tasks that write it, in a stage before it."""
    order = stages()
    before = {role for stage in order[: order.index("reboot.yml")] for role in roles_of(stage)}
    # The BIOS has a playbook of its own, with the same barrier at its end.
    plays = yaml.safe_load((REPO / "playbooks/hardware.yml").read_text())
    barrier = next(n for n, play in enumerate(plays) if play.get("ansible.builtin.import_playbook") == "reboot.yml")
    before |= imported(plays[:barrier])
    asking = {
        path.relative_to(REPO / "roles").parts[0]
        for path in (REPO / "roles").rglob("*.yml")
        if re.search(rf"(path|_reason_file): {one_reboot.REASONS}", path.read_text()) and path.name != "absent.yml"
    }
    assert asking == {"bios", "kernel", "nvidia_driver", "ofed", "remoting_server"}
    for role in asking:
        tasks = {name.partition("/")[2] or "present" for name in before if name.partition("/")[0] == role}
        assert tasks, f"role {role} writes reasons for a reboot, and no stage before the barrier goes through it"
        files = {file for start in tasks for file in reached(role, start)}
        writes = [
            f
            for f in files
            if re.search(
                r"reboot-required|__\w+_files|__\w+_reason_file", (REPO / f"roles/{role}/tasks/{f}").read_text()
            )
        ]
        assert writes, f"{role}: {sorted(files)} write no reason"


def test_options_of_kernel_modules_are_written_before_the_barrier() -> None:
    """What the kernel or a driver takes when it is loaded has to be there before the one reboot."""
    order = stages()
    before = {role.partition("/")[0] for stage in order[: order.index("reboot.yml")] for role in roles_of(stage)}
    late = re.compile(r"path: \"?/etc/(modprobe\.d|modules-load\.d|default/grub|dracut|initramfs-tools)")
    writing = {
        path.relative_to(REPO / "roles").parts[0]
        for path in (REPO / "roles").rglob("*.yml")
        if late.search(path.read_text())
    }
    assert writing
    assert writing <= before


PARAMS = "ModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: {gid}\nDeviceFileMode: {mode}\n"


@pytest.mark.parametrize(
    ("params", "opens"),
    [
        ("", False),
        (PARAMS.format(gid=987, mode=432), False),
        (PARAMS.format(gid=987, mode=438), True),
        (PARAMS.format(gid=0, mode=432), True),
        (PARAMS.format(gid=9870, mode=432), True),
        (PARAMS.format(gid=987, mode=4320), True),
    ],
)
def test_how_the_loaded_driver_makes_device_files(params: str, opens: bool) -> None:
    assert remoting.driver_opens_devices(params, "987") is opens


MODULES = {
    "idle": (
        "nvidia_drm 122880 0 - Live 0x0\nnvidia_modeset 1556480 1 nvidia_drm, Live 0x0\n"
        "nvidia_uvm 4653056 0 - Live 0x0\nnvidia 14381056 2 nvidia_uvm,nvidia_modeset, Live 0x0\next4 1 9 - Live 0x0\n",
        ["nvidia_drm", "nvidia_uvm", "nvidia_modeset", "nvidia"],
    ),
    "open": ("nvidia_uvm 4653056 0 - Live 0x0\nnvidia 14381056 2 nvidia_uvm, Live 0x0\n", []),
    "compute": ("nvidia_uvm 4653056 4 - Live 0x0\nnvidia 14381056 1 nvidia_uvm, Live 0x0\n", []),
    "other module": ("nvidia 14381056 1 gdrdrv, Live 0x0\ngdrdrv 28672 0 - Live 0x0\n", []),
    "none": ("ext4 1 9 - Live 0x0\n", []),
    "alone": ("nvidia 14381056 0 - Live 0x0\n", ["nvidia"]),
}


@pytest.mark.parametrize("case", MODULES)
def test_a_driver_is_loaded_anew_only_where_nothing_uses_it(case: str) -> None:
    modules, order = MODULES[case]
    assert remoting.driver_unused(modules) == order
