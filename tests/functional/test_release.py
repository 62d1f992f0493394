"""tools/release.py: from a tree with notes of changes to what is handed out, checked by stock tools."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.support.installed import clone

pytestmark = pytest.mark.systems

BIN = Path(sys.executable).parent
VERSION = "7.8.9"
WHEEL = f"elastic_ai_toolkit-{VERSION}-py3-none-any.whl"
COLLECTION = f"elastic_ai-toolkit-{VERSION}.tar.gz"
SOURCES = f"elastic-ai-toolkit-{VERSION}.tar.gz"


def run(*words: str | Path, cwd: Path, umask: int = 0o022) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in words], cwd=cwd, umask=umask, capture_output=True, text=True, check=False, timeout=300
    )


def release(tree: Path, *words: str | Path, umask: int = 0o022) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, tree / "tools/release.py", *words, cwd=tree, umask=umask)


def commit(tree: Path, words: str) -> None:
    who = ("-c", "user.name=Test", "-c", "user.email=test@example.net")
    done = run("git", *who, "commit", "-q", "--no-verify", "-am", words, cwd=tree)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This tree with the changes of the next release in its changelog, committed."""
    tree = clone(tmp_path_factory.mktemp("release"))
    (tree / "changelog.d/release.added.md").write_text("A release has notes.\n", encoding="utf-8")
    run("git", "add", "-A", cwd=tree)
    done = release(tree, "prepare", VERSION)
    assert done.returncode == 0, done.stderr
    commit(tree, f"Release {VERSION}")
    return tree


@pytest.fixture(scope="module")
def built(prepared: Path, key: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out") / "dist"
    done = release(prepared, "build", "--out", out, "--key", key)
    assert done.returncode == 0, done.stderr
    return out


def test_a_prepared_tree_names_the_version_everywhere(prepared: Path) -> None:
    assert f'\nversion = "{VERSION}"\n' in (prepared / "pyproject.toml").read_text(encoding="utf-8")
    assert f"\nversion: {VERSION}\n" in (prepared / "galaxy.yml").read_text(encoding="utf-8")
    changes = (prepared / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\n## {VERSION} (" in changes
    assert "- A release has notes.\n" in changes
    assert f'"{VERSION}": {{' in (prepared / "validation/rules/releases.json").read_text(encoding="utf-8")
    assert [path.name for path in (prepared / "changelog.d").iterdir()] == ["README.md"]


def test_what_is_handed_out_is_checked_by_stock_tools(built: Path, key: Path, tmp_path: Path) -> None:
    assert {path.name for path in built.iterdir()} == {WHEEL, COLLECTION, SOURCES, "SHA256SUMS", "SHA256SUMS.sig"}
    assert run("sha256sum", "--strict", "-c", "SHA256SUMS", cwd=built).returncode == 0
    signers = tmp_path / "signers"
    signers.write_text(f"release {key.with_suffix('.pub').read_text(encoding='utf-8')}", encoding="utf-8")
    verify = ["ssh-keygen", "-Y", "verify", "-f", str(signers), "-I", "release", "-n", "elastic-ai-release", "-s"]
    with (built / "SHA256SUMS").open("rb") as sums:
        done = subprocess.run([*verify, str(built / "SHA256SUMS.sig")], stdin=sums, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.rest
def test_a_second_build_is_the_same_bytes(built: Path, prepared: Path, key: Path, tmp_path: Path) -> None:
    """By another umask, from a clone in another folder, with files about that are not committed."""
    again = tmp_path / "again"
    run("git", "clone", "-q", prepared, again, cwd=tmp_path)
    (again / "inventories/ours").mkdir()
    (again / "inventories/ours/hosts.yml").write_text("secret\n", encoding="utf-8")
    done = release(again, "build", "--out", tmp_path / "dist", "--key", key, umask=0o077)
    assert done.returncode == 0, done.stderr
    for name in (WHEEL, COLLECTION, SOURCES, "SHA256SUMS"):
        assert (tmp_path / "dist" / name).read_bytes() == (built / name).read_bytes(), name


def test_the_collection_installs(built: Path, tmp_path: Path) -> None:
    words = (BIN / "ansible-galaxy", "collection", "install", built / COLLECTION, "--offline", "-p", tmp_path)
    done = run(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    verified = run(
        BIN / "ansible-galaxy", "collection", "verify", "--offline", "-p", tmp_path, "elastic_ai.toolkit", cwd=tmp_path
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr
    installed = tmp_path / "ansible_collections/elastic_ai/toolkit"
    assert (installed / "roles/base/tasks/main.yml").is_file()


def test_the_sources_have_all_that_is_committed(built: Path, prepared: Path) -> None:
    with tarfile.open(built / SOURCES) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    listed = run("git", "ls-files", cwd=prepared).stdout.splitlines()
    assert {*listed} <= names


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("changed", "error: the tree has changes that were not committed"),
        ("unprepared", "error: CHANGELOG.md: has no section of 9.9.9; run tools/release.py prepare"),
        ("differs", "error: the version differs: pyproject.toml has 9.9.9, galaxy.yml has 7.8.9"),
        ("full", "dist: is not empty; name a new folder"),
        ("key", "none: no such key"),
        ("no key", "is not a public key file"),
    ],
)
def test_what_is_no_release_is_refused(what: str, words: str, prepared: Path, key: Path, tmp_path: Path) -> None:
    tree, out = prepared, tmp_path / "dist"
    if what in ("changed", "unprepared", "differs"):
        tree = tmp_path / "tree"
        run("git", "clone", "-q", "--shared", prepared, tree, cwd=tmp_path)
        names = {"changed": ["site.yml"], "differs": ["pyproject.toml"]}.get(what, ["pyproject.toml", "galaxy.yml"])
        for name in names:
            text = (tree / name).read_text(encoding="utf-8")
            (tree / name).write_text(text.replace(VERSION, "9.9.9") + "# more\n", encoding="utf-8")
        if what != "changed":
            commit(tree, "another version")
    if what == "full":
        out.mkdir()
        (out / "kept").write_text("mine\n", encoding="utf-8")
    named = {"key": tmp_path / "none", "no key": Path(__file__)}.get(what, key)
    done = release(tree, "build", "--out", out, "--key", named)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert [path.name for path in out.glob("*")] == (["kept"] if what == "full" else [])


@pytest.mark.parametrize(
    ("version", "words"), [("1.2", "'1.2' is no version"), (VERSION, "has a section of 7.8.9 already")]
)
def test_a_release_that_cannot_be_prepared_changes_nothing(version: str, words: str, prepared: Path) -> None:
    done = release(prepared, "prepare", version)
    assert done.returncode == 2
    assert words in done.stderr
    assert run("git", "status", "--porcelain", cwd=prepared).stdout == ""
