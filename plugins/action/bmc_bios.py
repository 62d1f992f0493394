"""bmc_bios: BIOS attributes of the host set by its BMC, from the controller. Nothing runs on the host itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils import bios, bios_acts, bmc, project

HIDDEN = "********"


def hidden(value: Any, secret: str) -> Any:
    """The same without the password, wherever a BMC may have repeated it."""
    if isinstance(value, str):
        return value.replace(secret, HIDDEN) if secret else value
    if isinstance(value, list):
        return [hidden(one, secret) for one in value]
    if isinstance(value, dict):
        return {key: hidden(one, secret) for key, one in value.items()}
    return value


class ActionModule(ActionBase):
    """Reads the variable `bmc` itself: as an argument its password would be shown with the task's arguments."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """What was done, or one sentence on why not."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, given = self.validate_argument_spec({
            "state": {"choices": ["present", "absent"], "default": "present"},
            "settled": {"type": "bool", "default": False},
            "attributes": {"type": "dict", "default": {}},
            "gpu_node": {"type": "bool", "default": False},
            "profile": {"type": "path", "required": True},
            "timeout_s": {"type": "int", "required": True},
        })  # fmt: skip
        secret = ""
        try:
            target = bmc.redfish.target(self._templar.template((task_vars or {}).get("bmc")))
            secret = target.password
            found = self._done(given, lambda seconds: bmc.redfish.Session(target, seconds)).answer()
        except (bmc.Fault, bmc.redfish.Refused, bmc.redfish.Unread) as fault:
            found = self._failed(str(fault), task_vars)
        except (AttributeError, KeyError, TypeError, ValueError) as fault:
            # an answer that nobody thought of: one sentence, and its host alone
            found = self._failed(f"its answers could not be read ({type(fault).__name__}: {fault})", task_vars)
        found = hidden(found, secret)
        if self._task.diff and found.get("changed"):
            result["diff"] = {"prepared": "\n".join(found["changes"]) + "\n"}
        result.update(found)
        return result

    @staticmethod
    def _failed(words: str, task_vars: dict[str, Any] | None) -> dict[str, Any]:
        name = (task_vars or {}).get("inventory_hostname")
        return {"failed": True, "changed": False, "msg": f"BMC of {name}: {words}"}

    def _done(self, given: dict[str, Any], opened: Callable[[float], Any]) -> bios_acts.Done:
        folder = Path(__file__).resolve().parents[2]
        table = project.loaded(folder, "validation/measures/hardware/bios_wishes.py").WISHES
        wishes = bios.wishes_of(table if given["gpu_node"] else {}, given["attributes"])
        store = bios_acts.Store(Path(given["profile"]))
        back = given["state"] == "absent"
        if given["settled"]:
            if back:
                return bios_acts.settled(opened, given["timeout_s"], lambda machine: bios_acts.not_back(machine, store))
            later = store.postponed()
            return bios_acts.settled(
                opened, given["timeout_s"], lambda machine: bios_acts.unmet(machine, wishes, later), later
            )
        if back and store.read() is None:
            return bios_acts.Done()
        with opened(given["timeout_s"]) as session:
            machine = bmc.Machine(session)
            check = self._task.check_mode
            if back:
                return bios_acts.absent(machine, wishes, store, check)
            return bios_acts.present(machine, wishes, store, check)
