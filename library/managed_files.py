#!/usr/bin/python3
"""All files of a role in one remote task, with the directories above them, honest in check mode."""

from __future__ import annotations

import json
import os
import pwd
import tempfile
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: managed_files
short_description: Bring several small text files and directories to their wanted content in one task
description:
  - Replaces a row of template and copy tasks. One round trip for a whole role, and a check mode that is right on a
    fresh node too, where the directories above the files do not exist yet.
  - Files are replaced atomically. Nothing is touched that is already as wanted.
options:
  directories:
    description: Directories to have.
    type: list
    elements: dict
    default: []
    suboptions:
      path: {description: absolute path, type: path, required: true}
      owner: {description: user, type: str, default: root}
      group: {description: group, type: str, default: root}
      mode: {description: octal mode, type: str, default: "0755"}
  files:
    description: Files to have. Missing directories above them are made, root-owned and 0755.
    type: list
    elements: dict
    default: []
    suboptions:
      path: {description: absolute path, type: path, required: true}
      content: {description: text; a mapping or list is written as sorted JSON, type: raw}
      state: {description: whether it is to exist, type: str, choices: [present, absent], default: present}
      owner: {description: user, type: str, default: root}
      group: {description: group, type: str, default: root}
      mode: {description: octal mode, type: str, default: "0644"}
      secret: {description: leave the content out of diffs, type: bool, default: false}
author: Elastic AI Toolkit
"""
EXAMPLES = r"""
- name: Configure the clock
  managed_files:
    files:
      - path: /etc/chrony/chrony.conf
        content: "{{ lookup('ansible.builtin.template', 'chrony.conf.j2') }}"
  notify: Restart chrony
"""
RETURN = r"""
changed_paths: {description: what was (in check mode - would be) changed, returned: always, type: list}
"""


def text_of(content: Any) -> str:
    """The text to write: JSON for structures, and always a newline at the end."""
    text = content if isinstance(content, str) else json.dumps(content, indent=2, sort_keys=True)
    return text if not text or text.endswith("\n") else text + "\n"


def attributes_differ(module: AnsibleModule, entry: dict[str, Any]) -> bool:
    """Set owner, group and mode (in check mode: only look); True when they differed."""
    if module.check_mode:
        try:
            pwd.getpwnam(entry["owner"])
        except KeyError:
            return True  # the user is made earlier in the same role, so the real run will set it
    wanted = {"path": entry["path"], "owner": entry["owner"], "group": entry["group"], "mode": entry["mode"]}
    arguments = module.load_file_common_arguments({**module.params, **wanted})
    return bool(module.set_fs_attributes_if_different(arguments, False))


def ensure_directory(module: AnsibleModule, entry: dict[str, Any]) -> bool:
    """Have one directory; True when something changed."""
    path = Path(entry["path"])
    if path.is_dir():
        return attributes_differ(module, entry)
    if not module.check_mode:
        path.mkdir(parents=True)
        attributes_differ(module, entry)
    return True


def ensure_absent(module: AnsibleModule, path: Path) -> bool:
    """Remove one file; True when it was there."""
    if not path.exists() and not path.is_symlink():
        return False
    if not module.check_mode:
        path.unlink()
    return True


def ensure_file(module: AnsibleModule, entry: dict[str, Any], diffs: list[dict[str, str]]) -> bool:
    """Have one file with its content and attributes; True when something changed."""
    path = Path(entry["path"])
    if entry["content"] is None:
        module.fail_json(msg=f"{path}: content is required when state is present")
    wanted = text_of(entry["content"])
    before = path.read_text(encoding="utf-8") if path.is_file() else None
    if before == wanted:
        return attributes_differ(module, entry)
    if not entry["secret"]:
        diffs.append({"before": before or "", "after": wanted, "before_header": str(path), "after_header": str(path)})
    if not module.check_mode:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, scratch = tempfile.mkstemp(dir=module.tmpdir)  # 0600 from birth, as secrets need
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(wanted)
        module.atomic_move(scratch, str(path))
        attributes_differ(module, entry)
    return True


def main() -> None:
    """Bring everything to its wanted state and say what changed."""
    common = {
        "path": {"type": "path", "required": True},
        "owner": {"type": "str", "default": "root"},
        "group": {"type": "str", "default": "root"},
    }
    file_options = {
        **common,
        "content": {"type": "raw"},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "mode": {"type": "str", "default": "0644"},
        "secret": {"type": "bool", "default": False, "no_log": False},
    }
    directory_options = {**common, "mode": {"type": "str", "default": "0755"}}
    module = AnsibleModule(
        argument_spec={
            "directories": {"type": "list", "elements": "dict", "default": [], "options": directory_options},
            "files": {"type": "list", "elements": "dict", "default": [], "options": file_options},
        },
        supports_check_mode=True,
    )
    diffs: list[dict[str, str]] = []
    changed: list[str] = []
    try:
        for entry in module.params["directories"]:
            if ensure_directory(module, entry):
                changed.append(entry["path"])
        for entry in module.params["files"]:
            absent = entry["state"] == "absent"
            path = Path(entry["path"])
            if ensure_absent(module, path) if absent else ensure_file(module, entry, diffs):
                changed.append(entry["path"])
    except OSError as error:
        module.fail_json(
            msg=f"{error.filename}: {error.strerror}; files changed so far: {', '.join(changed) or 'none'}"
        )
    module.exit_json(changed=bool(changed), changed_paths=changed, diff=diffs)


if __name__ == "__main__":
    main()
