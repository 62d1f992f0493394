#!/usr/bin/python3
"""Set values that the running kernel holds in files of /proc/sys and /sys, honest in check mode."""

from __future__ import annotations

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: kernel_values
short_description: Set values that the running kernel holds in files
version_added: 0.1.0
description:
  - Writes to each file that holds another value, in one round trip. Check mode and diff tell what would be written.
  - Nothing is kept over a reboot; that is the matter of sysctl.d and of units.
options:
  values: {description: the value of each file by its path; blanks are compared folded, type: dict, required: true}
author: Elastic AI Toolkit
"""
EXAMPLES = r"""
- name: Set the governor
  elastic_ai.toolkit.kernel_values:
    values: {/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor: performance}
"""
RETURN = r"""
changed_paths: {description: what was (in check mode - would be) written, returned: always, type: list}
"""


def folded(text: str) -> str:
    """The value with blanks folded, as the kernel separates several numbers by tabs."""
    return " ".join(text.split())


def main() -> None:
    """Write what differs."""
    module = AnsibleModule(argument_spec={"values": {"type": "dict", "required": True}}, supports_check_mode=True)
    before, after = {}, {}
    for name, value in module.params["values"].items():
        path, wanted = Path(name), folded(str(value))
        try:
            current = folded(path.read_text(encoding="utf-8"))
            if current == wanted:
                continue
            if not module.check_mode:
                path.write_text(wanted + "\n", encoding="utf-8")
        except OSError as error:
            module.fail_json(
                msg=f"{name}: {error.strerror}; the kernel did not take {wanted!r}",
                changed=bool(after),
                changed_paths=list(after),
            )
        before[name], after[name] = current, wanted
    module.exit_json(changed=bool(after), changed_paths=list(after), diff={"before": before, "after": after})


if __name__ == "__main__":
    main()
