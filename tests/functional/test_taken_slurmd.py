"""A slurmd that runs already, of somebody's whose node is taken over or of an earlier run, meets a new configuration:
it is restarted once all that this names is there, and stopped where the GPUs' device files are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.functional.test_check_mode_per_os import keys
from tests.functional.test_taken_over import XE9680
from tests.support import one_reboot
from tests.support.one_reboot import Json, calls

pytestmark = pytest.mark.systems


PMIX = "/usr/lib/x86_64-linux-gnu/pmix2/lib/libpmix.so.2"
DEVICES = {f"/dev/nvidia{number}": "" for number in range(8)}
PACKAGES = dict.fromkeys(
    ("slurmctld", "slurmdbd", "slurmd", "slurm-client", "munge", "mariadb-server", "libpmix2t64"), "1"
)


def acts(folder: Path, files: dict[str, str]) -> list[str]:
    """What is done with slurmd and with what its configuration names, in this order."""
    recording = one_reboot.arrived(XE9680)
    state: Json = recording["modules"]["node_state"]
    names = ("munge", "mariadb", "slurmdbd", "slurmctld", "slurmd")  # the machine is its own head
    state["units"] = {
        **state.get("units", {}),
        **{f"{name}.service": {"active": True, "enabled": True} for name in names},
    }
    state["packages"] = {**state.get("packages", {}), **PACKAGES}
    state["files"] = {**state.get("files", {}), **files}
    hosts = one_reboot.inventory(XE9680, folder / "site", recording, keys(folder))
    one_reboot.check(folder, {"site": hosts}, "--tags", "pool")
    done = []
    for call in calls(hosts):
        args = call["args"]
        if call["module"] == "systemd_service" and args.get("name") == "slurmd.service":
            done.append(args["state"])
        elif call["module"] == "file" and args.get("state") == "link":
            done.append("link")
    return done


def test_it_is_stopped_where_the_driver_has_made_no_device_files_yet(tmp_path: Path) -> None:
    assert acts(tmp_path, {})[0] == "stopped"


def test_it_is_restarted_once_what_its_configuration_names_is_there(tmp_path: Path) -> None:
    assert acts(tmp_path, {**DEVICES, PMIX: ""})[:2] == ["link", "restarted"]
