"""managed_files with a ledger: what a role wrote can be taken back, and only that."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.elastic_ai.toolkit.plugins.module_utils import files as ledgers
from tests.support import node_modules  # noqa: F401 - makes the collection importable
from tests.support.node_modules import OWNER, run


def call(tmp_path: Path, owner: str = "demo", check: bool = False, **arguments: Any) -> dict[str, Any]:
    answer = run("managed_files", {"owner_role": owner, "state_dir": str(tmp_path / "state"), **arguments}, check)
    assert not answer.get("failed"), answer
    return answer


def file(path: Path, content: str = "ours", **more: Any) -> dict[str, Any]:
    return {"path": str(path), "content": content, **OWNER, **more}


def tree(folder: Path) -> dict[str, tuple[int, str]]:
    paths = [p for p in folder.rglob("*") if p.is_file() or p.is_symlink() or p.is_dir()]
    return {str(p): (p.lstat().st_mode, p.read_text() if p.is_file() else "") for p in paths}


def test_everything_a_role_wrote_goes_and_the_originals_come_back(tmp_path: Path) -> None:
    node = tmp_path / "node"
    node.mkdir()
    (node / "conf").write_text("theirs\n")
    (node / "conf").chmod(0o640)
    (node / "link").symlink_to("elsewhere")
    (node / "narrow").mkdir(mode=0o711)
    before = tree(node)
    wanted = {
        "directories": [{"path": str(node / "narrow"), "mode": "0755", **OWNER}],
        "files": [file(node / "conf"), file(node / "link"), file(node / "a" / "b" / "new", secret=True)],
    }
    call(tmp_path, **wanted)
    assert (node / "conf").read_text() == "ours\n"
    assert call(tmp_path, **wanted)["changed"] is False
    call(tmp_path, files=[file(node / "conf", "ours, again")])  # the original stays the first one
    predicted = call(tmp_path, remove_owned=True, check=True)
    done = call(tmp_path, remove_owned=True)
    assert tree(node) == before
    assert predicted["changed_paths"] == done["changed_paths"]
    assert call(tmp_path, remove_owned=True)["changed"] is False
    assert not (tmp_path / "state").exists()


def test_one_file_is_put_back_by_state_absent_with_the_folders_made_for_it(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("theirs")
    call(tmp_path, files=[file(tmp_path / "old"), file(tmp_path / "new" / "file")])
    gone = [{"path": str(tmp_path / "old"), "state": "absent"}, {"path": str(tmp_path / "new/file"), "state": "absent"}]
    call(tmp_path, files=gone)
    assert (tmp_path / "old").read_text() == "theirs"
    assert not (tmp_path / "new").exists()


def test_a_folder_with_something_else_in_it_stays(tmp_path: Path) -> None:
    call(tmp_path, files=[file(tmp_path / "shared" / "ours")])
    (tmp_path / "shared" / "theirs").write_text("")
    call(tmp_path, remove_owned=True)
    assert [p.name for p in (tmp_path / "shared").iterdir()] == ["theirs"]


def test_what_was_edited_after_us_is_kept_beside_the_original(tmp_path: Path) -> None:
    conf = tmp_path / "conf"
    conf.write_text("theirs")
    call(tmp_path, files=[file(conf)])
    conf.write_text("edited by hand")
    warnings = call(tmp_path, remove_owned=True)["warnings"]
    assert conf.read_text() == "theirs"
    assert (tmp_path / "conf.elastic-ai-saved").read_text() == "edited by hand"
    assert "was changed after the toolkit had written it" in json.dumps(warnings)


def test_a_file_that_two_roles_write_goes_with_the_last_of_them(tmp_path: Path) -> None:
    conf = tmp_path / "conf"
    conf.write_text("theirs")
    call(tmp_path, owner="one", files=[file(conf, "one")])
    call(tmp_path, owner="two", files=[file(conf, "two")])
    call(tmp_path, owner="one", remove_owned=True)
    assert conf.read_text() == "two\n"
    call(tmp_path, owner="two", remove_owned=True)
    assert conf.read_text() == "theirs"


def test_a_run_that_was_killed_after_its_ledger_can_be_taken_back(tmp_path: Path) -> None:
    conf = tmp_path / "conf"
    conf.write_text("theirs")
    ledger = ledgers.FileLedger(tmp_path / "state", "demo", lambda command: (1, "", ""))
    ledger.note_file(str(conf), b"ours\n")
    ledger.note_file(str(tmp_path / "a" / "new"), b"ours\n")
    ledger.save()  # and here the power went
    call(tmp_path, remove_owned=True)
    assert conf.read_text() == "theirs"
    assert not (tmp_path / "state").exists()


def test_a_configuration_of_a_package_that_is_gone_is_not_put_back(tmp_path: Path) -> None:
    conf = tmp_path / "conf"
    conf.write_text("the package's")

    def dpkg(command: list[str]) -> tuple[int, str, str]:
        return (0, f"demo-package: {conf}\n", "") if "-S" in command else (1, "", "no such package")

    ledger = ledgers.FileLedger(tmp_path / "state", "demo", dpkg)
    ledger.note_file(str(conf), b"ours\n")
    conf.write_text("ours\n")
    ledger.release_file(str(conf))
    assert not conf.exists()


def test_whole_trees_go_only_where_they_are_ours(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.mkdir()
    (theirs / "file").write_text("")
    call(tmp_path, directories=[{"path": str(ours), **OWNER}])
    (ours / "made-by-a-daemon").write_text("")
    absent = [{"path": str(p), "state": "absent"} for p in (theirs, ours)]
    answer = call(tmp_path, directories=absent)
    assert answer["changed_paths"] == [str(ours)]
    assert "was not made by the toolkit and stays" in json.dumps(answer["warnings"])
    assert (theirs / "file").exists()
    assert not ours.exists()


@pytest.mark.parametrize(
    ("path", "ours"),
    [("/etc/elastic-ai", True), ("/opt/elastic-ai/x", True), ("/etc", False), ("/etc/elastic-air", False)],
)
def test_the_toolkits_own_folders(path: str, ours: bool) -> None:
    assert ledgers.is_ours(Path(path)) is ours


def test_remove_owned_needs_an_owner(tmp_path: Path) -> None:
    answer = run("managed_files", {"remove_owned": True, "state_dir": str(tmp_path)})
    assert "needs owner_role" in answer["msg"]


def test_a_file_of_somebody_else_that_is_to_go_is_kept_and_comes_back(tmp_path: Path) -> None:
    """As a cgroup.conf or job_submit.lua of another cluster, where this pool has none."""
    theirs = tmp_path / "cgroup.conf"
    theirs.write_text("theirs")
    theirs.chmod(0o640)
    gone = [{"path": str(theirs), "state": "absent"}]
    predicted = call(tmp_path, files=gone, check=True)
    assert call(tmp_path, files=gone)["changed_paths"] == predicted["changed_paths"] == [str(theirs)]
    assert not theirs.exists()
    assert call(tmp_path, files=gone)["changed"] is False, "it stays away"
    assert call(tmp_path, files=gone, check=True)["changed"] is False
    theirs.write_text("once more")
    assert call(tmp_path, files=gone)["changed"] is True
    assert not theirs.exists()
    call(tmp_path, remove_owned=True)
    assert (theirs.read_text(), theirs.stat().st_mode & 0o777) == ("theirs", 0o640)
    assert not (tmp_path / "state").exists()


def test_a_file_that_went_and_is_wanted_later_is_the_roles_own_with_the_first_original(tmp_path: Path) -> None:
    theirs = tmp_path / "cgroup.conf"
    theirs.write_text("theirs")
    call(tmp_path, files=[{"path": str(theirs), "state": "absent"}])
    call(tmp_path, files=[file(theirs)])
    assert theirs.read_text() == "ours\n"
    assert call(tmp_path, files=[file(theirs)])["changed"] is False
    call(tmp_path, remove_owned=True)
    assert theirs.read_text() == "theirs"


@pytest.mark.parametrize(("text", "package"), [("theirs", ""), ("as packed", "exporter")])
def test_a_packages_settings_that_somebody_had_before_outlive_that_package(
    tmp_path: Path, text: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """dpkg keeps an edited file of settings that is there before its package, and lists it as the package's."""
    conf, packed = tmp_path / "exporter", hashlib.md5(b"as packed", usedforsecurity=False).hexdigest()
    conf.write_text(text)
    monkeypatch.setattr(ledgers.shutil, "which", lambda name: name if name == "dpkg-query" else None)

    def dpkg(words: list[str]) -> tuple[int, str, str]:
        return (0, f"exporter: {conf}\n" if "-S" in words else f"\n {conf} {packed}\n /etc/other {'0' * 32}\n", "")

    ledger = ledgers.FileLedger(tmp_path / "state", "demo", dpkg)
    ledger.note_file(str(conf), b"ours")
    assert ledger.files[str(conf)]["package"] == package
    conf.write_text("ours")
    ledger.run = lambda words: (1, "", "no packages found")  # the package is gone
    ledger.release_file(str(conf))
    assert conf.exists() == (not package)
    assert package or conf.read_text() == "theirs"
