#!/usr/bin/python3
"""All files of a role in one remote task, with the directories above them, honest in check mode."""

from __future__ import annotations

import grp
import json
import os
import pwd
import shutil
import tempfile
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.elastic_ai.toolkit.plugins.module_utils.files import STATE_DIR, FileLedger, is_ours, there
from ansible_collections.elastic_ai.toolkit.plugins.module_utils.plain import plain

DOCUMENTATION = r"""
module: managed_files
short_description: Bring several small text files and directories to their wanted content in one task
version_added: 0.1.0
description:
  - Replaces a row of template and copy tasks. One round trip for a whole role, and a check mode that is right on a
    fresh node too, where the directories above the files do not exist yet.
  - An entry says its text as O(files[].content), or names a template or file of the role. These are read on the
    controller, by an action plugin, and only for an entry that is wanted.
  - Files are replaced atomically. Nothing is touched that is already as wanted.
  - With O(owner_role) it keeps a ledger on the node of what it wrote and made for that role, and the originals of the
    files that it replaced, so that the role can be taken back.
options:
  directories:
    description: Directories to have.
    type: list
    elements: dict
    default: []
    suboptions:
      when: {description: leave the entry out unless this is true; read on the controller, type: bool, default: true}
      path: {description: absolute path, type: path, required: true}
      state: {description: V(absent) removes the whole tree if it is in the ledger or in a folder of the toolkit; any
          other is left alone with a warning, type: str, choices: [present, absent], default: present}
      owner: {description: user, type: str, default: root}
      group: {description: group, type: str, default: root}
      mode: {description: octal mode, type: str, default: "0755"}
  files:
    description: Files to have. Missing directories above them are made, root-owned and 0755.
    type: list
    elements: dict
    default: []
    suboptions:
      when: {description: leave the entry out unless this is true; read on the controller, type: bool, default: true}
      path: {description: "absolute path; with a trailing slash the folder of all files that O(files[].template) or
        O(files[].src) list", type: path, required: true}
      content: {description: text; a mapping or list is written as sorted JSON, type: raw}
      template: {description: instead of content a template of the role; read on the controller, type: raw}
      vars: {description: variables for that template; read on the controller, type: dict, default: {}}
      src: {description: instead of content a file of the role; read on the controller, type: raw}
      relative_to: {description: "folder below which the files that O(files[].src) lists keep their folders; read on the
        controller", type: path}
      state: {description: V(absent) puts the original back where the ledger has one and else removes the file; one
          that the toolkit has not written is then an original itself, type: str, choices: [present, absent],
        default: present}
      owner: {description: user, type: str, default: root}
      group: {description: group, type: str, default: root}
      mode: {description: octal mode, type: str, default: "0644"}
      secret: {description: leave the content out of diffs, type: bool, default: false}
  owner_role:
    description: The role that the files belong to, for the ledger.
    type: str
    default: ""
  remove_owned:
    description: Take back all that the ledger lists for O(owner_role). Call it before the role's packages are purged.
    type: bool
    default: false
  state_dir:
    description: Where ledger and originals are kept.
    type: path
    default: /var/lib/elastic-ai
author: Elastic AI Toolkit
"""
EXAMPLES = r"""
- name: Configure the clock
  elastic_ai.toolkit.managed_files:
    owner_role: base
    files:
      - {path: /etc/chrony/chrony.conf, template: chrony.conf.j2}
      - {path: /etc/chrony/conf.d/, src: [pool.conf, leap.conf], when: "{{ base_clock_pool }}"}
  notify: Restart chrony

- name: Take the role's files back
  elastic_ai.toolkit.managed_files:
    owner_role: base
    remove_owned: true
"""
RETURN = r"""
changed_paths: {description: what was (in check mode - would be) changed, returned: always, type: list}
ledger_stale: {description: in check mode - whether the role's ledger lists what is to go,
  returned: always, type: bool}
"""


def text_of(content: Any) -> str:
    """The text to write: JSON for structures, and always a newline at the end."""
    text = content if isinstance(content, str) else json.dumps(content, indent=2, sort_keys=True)
    return text if not text or text.endswith("\n") else text + "\n"


def attributes_differ(entry: dict[str, Any]) -> bool:
    """Whether owner, group or mode are not as wanted."""
    status = Path(entry["path"]).stat()
    try:
        owner, group = pwd.getpwnam(entry["owner"]).pw_uid, grp.getgrnam(entry["group"]).gr_gid
    except KeyError:
        return True  # the user is made earlier in the same role, so the real run will set it
    return (status.st_uid, status.st_gid, status.st_mode & 0o7777) != (owner, group, int(entry["mode"], 8))


def set_attributes(module: AnsibleModule, entry: dict[str, Any]) -> None:
    """Set owner, group and mode."""
    wanted = {"path": entry["path"], "owner": entry["owner"], "group": entry["group"], "mode": entry["mode"]}
    module.set_fs_attributes_if_different(module.load_file_common_arguments({**module.params, **wanted}), False)


def write_file(module: AnsibleModule, entry: dict[str, Any], content: bytes) -> None:
    """Replace one file atomically."""
    path = Path(entry["path"])
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=".elastic-ai-")  # 0600 from birth, as secrets need
    with os.fdopen(handle, "wb") as stream:
        stream.write(content)
    module.atomic_move(scratch, str(path))
    set_attributes(module, entry)


class Work:
    """What one call changes: planned as a whole, entered into the ledger, and only then done."""

    def __init__(self, module: AnsibleModule) -> None:
        """Take the parameters."""
        self.module = module
        self.wanted = module.params
        owner = self.wanted["owner_role"]
        self.ledger = FileLedger(Path(self.wanted["state_dir"]), owner, self.run) if owner else None
        self.changed: list[str] = []
        self.diffs: list[dict[str, str]] = []
        self.warnings: list[str] = []
        self.ledger_stale = False

    def run(self, command: list[str]) -> tuple[int, str, str]:
        """Run a command."""
        code, out, err = plain(self.module).run_command(command)
        return code, out, err

    def directories_to_set(self) -> list[dict[str, Any]]:
        """Directories that are missing or have other attributes."""
        present = [entry for entry in self.wanted["directories"] if entry["state"] == "present"]
        return [entry for entry in present if not Path(entry["path"]).is_dir() or attributes_differ(entry)]

    def files_to_write(self) -> list[tuple[dict[str, Any], bytes]]:
        """Files that are missing or have another content or other attributes."""
        todo = []
        for entry in self.wanted["files"]:
            if entry["state"] == "absent":
                continue
            path = Path(entry["path"])
            if entry["content"] is None:
                self.module.fail_json(msg=f"{path}: content is required when state is present")
            content = text_of(entry["content"]).encode()
            before = path.read_bytes() if path.is_file() else None
            if before == content and not attributes_differ(entry):
                continue
            todo.append((entry, content))
            if before != content and not entry["secret"]:
                old, new = (before or b"").decode(errors="replace"), content.decode()
                header = {"before_header": str(path), "after_header": str(path)}
                self.diffs.append({"before": old, "after": new, **header})
        return todo

    def present(self) -> None:
        """Directories and files that are to be there."""
        directories, files = self.directories_to_set(), self.files_to_write()
        planned = [entry["path"] for entry in directories] + [entry["path"] for entry, _ in files]
        if self.module.check_mode:
            self.changed += planned
            return
        if self.ledger:
            for entry in directories:
                self.ledger.note_directory(entry["path"])
            for entry, content in files:
                self.ledger.note_file(entry["path"], content)
            self.ledger.save()  # before anything is touched: a run that is killed can still be taken back
        for entry in directories:
            Path(entry["path"]).mkdir(parents=True, exist_ok=True)
            set_attributes(self.module, entry)
            self.changed.append(entry["path"])
        for entry, content in files:
            write_file(self.module, entry, content)
            self.changed.append(entry["path"])

    def absent_file(self, path: str) -> None:
        """One file that is to go. One of somebody else's is kept as an original, as one that is replaced would be."""
        entry = self.ledger.files.get(path, {}) if self.ledger else {}
        if not there(Path(path)) and (not entry or entry.get("removed")):
            return
        if there(Path(path)) or entry.get("original"):
            self.changed.append(path)
        if self.module.check_mode:
            self.ledger_stale |= bool(entry)
            return
        if self.ledger and entry and not entry.get("removed"):
            self.ledger.release_file(path)
            self.changed += self.ledger.release_directories(below=Path(path))
            return
        if self.ledger and not entry and not is_ours(Path(path)) and "elastic-ai" not in path:
            self.ledger.note_removal(path)
            self.ledger.save()  # before it goes: a run that is killed can still be taken back
        Path(path).unlink()

    def absent_directory(self, path: str) -> None:
        """One whole tree that is to go, if it is ours."""
        folder = Path(path)
        if not folder.is_dir() or folder.is_symlink():
            return
        made = self.ledger is not None and "made" in self.ledger.directories.get(path, {})
        if not made and not is_ours(folder):
            self.warnings.append(f"{path} was not made by the toolkit and stays")
            return
        self.changed.append(path)
        if self.module.check_mode:
            return
        shutil.rmtree(folder)
        if self.ledger:
            for kind in (self.ledger.files, self.ledger.directories):
                for name in [n for n in kind if folder in (Path(n), *Path(n).parents)]:
                    del kind[name]
            self.changed += self.ledger.release_directories(below=folder)

    def owned(self) -> None:
        """Everything in the ledger."""
        ledger = self.ledger
        if ledger is None:
            self.module.fail_json(msg="remove_owned needs owner_role")
            return
        if self.module.check_mode:
            self.ledger_stale |= bool(ledger.files or ledger.directories)
            self.changed += [p for p, entry in ledger.files.items() if there(Path(p)) or entry["original"]]
            self.changed += ledger.releasable_directories()
            return
        for path in list(ledger.files):
            if there(Path(path)) or ledger.files[path]["original"]:
                self.changed.append(path)
            ledger.release_file(path)
            ledger.save()
        self.changed += ledger.release_directories()

    def do(self) -> None:
        """Everything that the parameters ask for."""
        self.present()
        for entry in self.wanted["files"]:
            if entry["state"] == "absent":
                self.absent_file(entry["path"])
        for entry in self.wanted["directories"]:
            if entry["state"] == "absent":
                self.absent_directory(entry["path"])
        if self.wanted["remove_owned"]:
            self.owned()
        if self.ledger:
            self.warnings += self.ledger.warnings
            if not self.module.check_mode:
                self.ledger.save()


def main() -> None:
    """Bring everything to its wanted state and say what changed."""
    common = {
        "path": {"type": "path", "required": True},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "owner": {"type": "str", "default": "root"},
        "group": {"type": "str", "default": "root"},
    }
    file_options = {
        **common,
        "content": {"type": "raw"},
        "mode": {"type": "str", "default": "0644"},
        "secret": {"type": "bool", "default": False, "no_log": False},
    }
    directory_options = {**common, "mode": {"type": "str", "default": "0755"}}
    module = AnsibleModule(
        argument_spec={
            "directories": {"type": "list", "elements": "dict", "default": [], "options": directory_options},
            "files": {"type": "list", "elements": "dict", "default": [], "options": file_options},
            "owner_role": {"type": "str", "default": ""},
            "remove_owned": {"type": "bool", "default": False},
            "state_dir": {"type": "path", "default": STATE_DIR},
        },
        supports_check_mode=True,
    )
    work = Work(module)
    try:
        work.do()
    except OSError as error:
        done = ", ".join(work.changed) or "none"
        module.fail_json(msg=f"{error.filename}: {error.strerror}; files changed so far: {done}")
    for warning in work.warnings:
        module.warn(warning)
    module.exit_json(
        changed=bool(work.changed), changed_paths=work.changed, diff=work.diffs, ledger_stale=work.ledger_stale
    )


if __name__ == "__main__":
    main()
