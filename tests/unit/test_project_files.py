"""Where the project's own files are, and what its own list of packages asks of this Python."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from toolkit import about, needs
from validation.base import project
from validation.rules.release import release

ROOT = Path(__file__).parents[2]
#: Files that may look beyond their own package: the two that know where everything is, and what runs without them.
KNOW = {"validation/base/project.py", "plugins/plugin_utils/project.py", "toolkit/needs.py"}
#: Folders above a module, from which files are taken that a wheel has elsewhere.
BEYOND = re.compile(
    r"(?:parents\[\d\]|\.parent\.parent)\s*/\s*\"(?:engine|roles|stacks|playbooks|inventories|plugins|tools)"
)


def test_a_checkout_has_its_files_in_its_own_folder() -> None:
    assert (project.CODE, project.ROOT) == (ROOT, ROOT)
    assert project.is_checkout()
    assert project.file("site.yml") == ROOT / "site.yml"


def test_what_is_missing_is_said_with_what_to_do() -> None:
    with pytest.raises(project.IncompleteError, match=r"^.*/none\.yml: no such file, so .* install its wheel again"):
        project.file("none.yml")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (json.dumps({"commit": "c0ffee", "modified": False}), ("c0ffee", False)),
        (json.dumps({"commit": "", "modified": None}), ("", None)),
        ("[]", ("", None)),
        ("{", ("", None)),
        (None, ("", None)),
    ],
)
def test_a_wheel_says_of_which_commit_it_is(text: str | None, told: tuple[str, bool | None], tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "built.json").write_text(text, encoding="utf-8")
    assert project._of_wheel(tmp_path / "built.json") == told


def test_a_checkout_says_what_it_is() -> None:
    first, second, third = about.lines()
    assert first == f"toolkit, version {release()}"
    assert re.match(rf"checkout: {ROOT}, commit (?:[0-9a-f]{{12}}|not known)", second)
    assert third.startswith("Python 3.")


def test_the_version_is_that_of_the_files_that_run() -> None:
    assert f'\nversion = "{release()}"\n' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_nobody_else_looks_for_the_projects_files() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for folder in ("toolkit", "validation")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for match in BEYOND.finditer(path.read_text(encoding="utf-8"))
        if path.relative_to(ROOT).as_posix() not in KNOW
    ]
    assert found == []


@pytest.mark.parametrize(
    ("marker", "python", "concerns"),
    [
        ("", (3, 10), True),
        ("python_version < '3.12'", (3, 11), True),
        ("python_version < '3.12'", (3, 12), False),
        ("python_version >= '3.12'", (3, 9), False),
        ("python_version >= '3.12'", (3, 13), True),
        ("sys_platform == 'linux'", (3, 13), True),
    ],
)
def test_a_line_of_the_packages_concerns_some_pythons(marker: str, python: tuple[int, int], concerns: bool) -> None:
    assert needs._concerns(marker, python) is concerns


def test_each_python_has_one_range_of_ansible() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    lines = [Requirement(line) for line in re.findall(r'^  "(ansible-core[^"]*)"', text, re.MULTILINE)]
    for minor in range(10, 16):
        fitting = [r for r in lines if r.marker is None or r.marker.evaluate({"python_version": f"3.{minor}"})]
        assert len(fitting) == 1, f"3.{minor}"
    mine = next(r for r in lines if r.marker is None or r.marker.evaluate())
    assert Requirement(needs.bounds()["ansible-core"]).specifier == mine.specifier


def test_no_message_asks_for_what_only_a_checkout_has() -> None:
    """Commands of the toolkit do the same from a wheel: toolkit deploy, toolkit teardown."""
    only = re.compile(r"ansible-playbook (?:site\.yml|playbooks/)|(?:run|by|it): (?:bin/|playbooks/)|run bin/")
    found = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for folder in ("toolkit", "validation", "plugins")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for match in only.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []


#: Archives, packages and built programs by their names. Sources and recorded texts are kept, not what is made of them.
BUILT = re.compile(
    r"\.(?:deb|rpm|apk|whl|egg|zip|jar|tar|tgz|tbz2|txz|gz|bz2|xz|zst|lz4|7z|rar|cpio|iso|img|qcow2"
    r"|so|o|a|ko|exe|dll|dylib|pyc|class|wasm|cubin|fatbin)(?:\.\d[\d.]*)?$",
    re.IGNORECASE,
)
#: Archives, packages and built programs by how they begin, whatever they are named; a tar has its mark at 257.
BEGIN = (b"!<arch>\n", b"\xed\xab\xee\xdb", b"PK\x03\x04", b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd",
         b"7z\xbc\xaf\x27\x1c", b"\x7fELF", b"MZ\x90\0")  # fmt: skip
TAR_MARK, TAR_AT = b"ustar", 257
#: The recorded run that the sample is made of (tools/make_sample.py --record).
ARCHIVES = {"tests/data/sample/rehearsal.tar.xz"}


def built(name: str, begin: bytes) -> bool:
    """Whether a file is an archive, a package or a built program, by its name or its first bytes."""
    return bool(BUILT.search(name)) or begin.startswith(BEGIN) or begin[TAR_AT:].startswith(TAR_MARK)


@pytest.mark.parametrize(
    ("name", "begin"),
    [
        ("a/munge_0.5_amd64.deb", b""),
        ("a/munge", b"!<arch>\ndebian-binary"),
        ("lib/libx.so.1.2", b""),
        ("data", bytes(257) + b"ustar\x0000"),
        ("x.tar.gz", b""),
        ("tool", b"\x7fELF\x02"),
    ],
)
def test_an_archive_or_a_built_program_is_seen_by_name_or_first_bytes(name: str, begin: bytes) -> None:
    assert built(name, begin)
    assert not built("a.md", b"# so.called")


def test_no_archive_package_or_built_program_is_tracked() -> None:
    asked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if asked.returncode != 0:
        pytest.skip("this copy has no git repository")
    found = []
    for name in filter(None, asked.stdout.split("\0")):
        path = ROOT / name
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                found += [name] if built(name, file.read(TAR_AT + len(TAR_MARK))) else []
    assert set(found) == ARCHIVES, "git rm --cached what is not in this list, and keep what it is made of"
