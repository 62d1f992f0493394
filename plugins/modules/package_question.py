#!/usr/bin/python3
"""Ask the package manager whether packages can be had, all at once."""

from __future__ import annotations

import re
import shutil
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.elastic_ai.toolkit.plugins.module_utils import apt
from ansible_collections.elastic_ai.toolkit.plugins.module_utils.packages import PackageError

DOCUMENTATION = r"""
module: package_question
short_description: Ask the package manager whether packages can be had
version_added: 0.1.0
description:
  - Installs and configures nothing. All packages are asked for at once.
  - With apt, lists that do not know a package are fetched once, except in check mode.
  - With dnf, packages of all module streams count, because a role enables the stream that it needs.
options:
  wanted: {description: version by package (an empty version accepts any), type: dict, required: true}
  lock_timeout_s: {description: how long to wait for another package manager, type: int, default: 300}
author: Elastic AI Toolkit
"""
EXAMPLES = r"""
- name: Ask for the packages of the stack
  elastic_ai.toolkit.package_question:
    wanted: {cuda-toolkit-13-0: 13.0.2-1, gcc: ""}
"""
RETURN = r"""
missing: {description: packages that cannot be had and the versions of each that can, returned: always, type: dict}
unmet: {description: what the others depend on and no repository has, returned: always, type: list}
unreadable: {description: why the package manager could not be asked (empty where it could), returned: always,
  type: str}
"""

#: Streams and locks are a role's matter.
DNF = ["dnf", "-q", "--disableplugin=versionlock", "--setopt=*.module_hotfixes=1"]
QUERY = r"%{name}\t%{epoch}:%{version}-%{release}\t%{name}-%{version}-%{release}.%{arch}"


def with_epoch(version: str) -> str:
    """A version as dnf and rpm print it in full."""
    return version if not version or ":" in version else f"0:{version}"


def dnf_answer(run: Any, wanted: dict[str, str]) -> dict[str, Any]:
    """By dnf: one question for the packages, one for what they need."""
    code, out, err = run([*DNF, "repoquery", "--qf", QUERY + r"\n", *wanted])
    if code != 0:
        return {"missing": {}, "unmet": [], "unreadable": " ".join(err.split())[-400:]}
    out += run(["rpm", "-qa", "--qf", QUERY.replace("%{epoch}", "%{epochnum}") + r"\n"])[1]
    there: dict[str, list[str]] = {name: [] for name in wanted}
    for line in out.replace("\\t", "\t").splitlines():
        name, version, whole = [*line.split("\t"), "", "", ""][:3]
        for key in (name, whole):
            if key in there and version not in there[key]:
                there[key].insert(0, version)
    missing = {
        name: versions
        for name, versions in there.items()
        if (with_epoch(wanted[name]) not in versions if wanted[name] else not versions)
    }
    # By what they provide, where the name is of no package.
    for name in [name for name, versions in missing.items() if not versions and not wanted[name]]:
        if run([*DNF, "repoquery", "--whatprovides", name])[1].strip():
            del missing[name]
    specs = [f"{name}-{version}" if version else name for name, version in wanted.items() if name not in missing]
    said = "".join(run([*DNF, "--assumeno", "install", *specs])[1:]) if specs else ""
    unmet = re.findall(r"nothing provides (.+? needed by \S+)", said)
    return {"missing": missing, "unmet": list(dict.fromkeys(unmet)), "unreadable": ""}


def apt_answer(manager: Any, wanted: dict[str, str], fetch: bool) -> dict[str, Any]:
    """By apt: one question for the packages, one for what they need."""

    def lacking() -> dict[str, list[str]]:
        installed = manager.installed()
        rest = {n: v for n, v in wanted.items() if n not in installed or (v and installed[n] != v)}
        known = manager.versions(rest)
        return {n: known[n] for n, v in rest.items() if (v not in known[n] if v else not known[n])}

    missing = lacking()
    if missing and fetch:
        try:
            manager.refresh()
        except PackageError as error:
            return {"missing": {}, "unmet": [], "unreadable": str(error)}
        missing = lacking()
    words = manager.words({name: version for name, version in wanted.items() if name not in missing})
    said = manager.run([*manager.get("-s", "--allow-downgrades"), "install", *words])[1] if words else ""
    unmet = re.findall(r"^ (\S+ : (?:Pre)?Depends: .+?) but it is not installable$", said, re.M)
    return {"missing": missing, "unmet": list(dict.fromkeys(unmet)), "unreadable": ""}


def main() -> None:
    """Ask."""
    module = AnsibleModule(
        argument_spec={
            "wanted": {"type": "dict", "required": True},
            "lock_timeout_s": {"type": "int", "default": 300},
        },
        supports_check_mode=True,
    )
    wanted = {name: str(version or "") for name, version in module.params["wanted"].items()}

    def run(command: list[str]) -> tuple[int, str, str]:
        code, out, err = module.run_command(command, environ_update=apt.ENVIRONMENT)
        return int(code), str(out), str(err)

    def run_both(command: list[str]) -> tuple[int, str]:
        code, out, err = run(command)
        return code, out + err

    if shutil.which("apt-get"):
        manager = apt.Apt(run_both, module.params["lock_timeout_s"], False)
        module.exit_json(changed=False, **apt_answer(manager, wanted, not module.check_mode))
    module.exit_json(changed=False, **dnf_answer(run, wanted))


if __name__ == "__main__":
    main()
