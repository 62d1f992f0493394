"""The bundle: canonical, opens anywhere, and no change of any byte goes unnoticed."""

from __future__ import annotations

import hashlib
import shutil
import struct
import subprocess
import tempfile
import zipfile
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.signing_case import NEEDS_SSH, make_key, reported_run, sign, signed_bundle
from validation.model.load import ConfigError
from validation.signing import bundle as bundles
from validation.signing.bundle import Damaged, Entry, extract_bundle, write_bundle
from validation.signing.manifest import compare, read_manifest
from validation.signing.pack import bundle_run
from validation.signing.verify import verify

pytestmark = [NEEDS_SSH, pytest.mark.computes]
MANY = settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A signed run and its bundle, not to be changed."""
    return signed_bundle(tmp_path_factory.mktemp("bundle"))


def seal(content: bytes) -> bytes:
    """Content (without its last 64 digits) with the hash that belongs there: what a forger would do."""
    return content + hashlib.sha256(content).hexdigest().encode()


def test_a_bundle_opens_anywhere_and_holds_everything(made, tmp_path):
    run, bundle = made
    with zipfile.ZipFile(bundle) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        archive.extractall(tmp_path)
    (folder,) = tmp_path.iterdir()
    assert folder.name == "2026-11-21T10-15-00Z-tcp10"
    files = {p.relative_to(run).as_posix() for p in run.rglob("*") if p.is_file() and not p.name.startswith(".")}
    assert {name.partition("/")[2] for name in names} == files
    assert all((folder / name).read_bytes() == (run / name).read_bytes() for name in files)
    assert verify(folder).good
    if shutil.which("unzip"):
        subprocess.run(["unzip", "-qt", bundle], check=True)


def test_the_same_run_gives_the_same_bundle(made, tmp_path):
    run, bundle = made
    copy = Path(shutil.copytree(run, tmp_path / "other-name"))
    assert bundle_run(copy, tmp_path / "b.zip").path.read_bytes() == bundle.read_bytes()


def test_a_good_bundle_verifies(made):
    found = verify(made[1])
    assert found.good
    assert found.path == str(made[1])
    assert found.judged_again
    assert found.made_again


def damage(content: bytes, kind: str, where: int, byte: int) -> bytes:
    where %= len(content)
    if kind == "flip":
        return content[:where] + bytes([content[where] ^ (byte or 1)]) + content[where + 1 :]
    if kind == "insert":
        return content[:where] + bytes([byte]) + content[where:]
    if kind == "append":
        return content + bytes([byte])
    return content[:where] + content[where + 1 :]


BYTES = (st.sampled_from(["flip", "insert", "delete", "append"]), st.integers(0, 10**9), st.integers(0, 255))


@MANY
@given(*BYTES)
def test_any_one_byte_change_of_a_bundle_is_found(made, tmp_path, kind, where, byte):
    path = tmp_path / "changed.zip"
    path.write_bytes(damage(made[1].read_bytes(), kind, where, byte))
    assert not verify(path).good


def test_every_bit_of_a_bundle_counts(tmp_path):
    """All of them, in a small one: also those that no ZIP program reads."""
    path = tmp_path / "small.zip"
    write_bundle(path, "run", {"a": b"some words, some words, some words", "b/c": b"", "d": bytes(range(90))})
    content = path.read_bytes()
    changes = [("flip", where, 1 << bit) for where in range(len(content)) for bit in range(8)]
    changes += [(kind, where, 0) for where in range(len(content)) for kind in ("insert", "delete")]
    extract_bundle(path, Path(tempfile.mkdtemp(dir=tmp_path)))
    for kind, where, byte in changes:
        path.write_bytes(damage(content, kind, where, byte))
        with pytest.raises(Damaged):
            extract_bundle(path, tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


@settings(MANY, max_examples=150)
@given(*BYTES, st.booleans())
def test_a_change_hidden_behind_a_new_hash_is_found_too(made, tmp_path, kind, where, byte, at_the_end):
    """A forger who also mends the file's own hash: either a ZIP part or a file of the run no longer fits.

    Only bits of compressed data that decode to the very same content may differ, for then nothing was changed.
    """
    content = made[1].read_bytes()[:-64]
    start = len(content) - 3000 if at_the_end else 0
    changed = content[:start] + damage(content[start:], kind, where, byte)
    path = tmp_path / "changed.zip"
    path.write_bytes(seal(changed))
    found = verify(path)
    if found.good:
        assert len(changed) == len(content)
        with zipfile.ZipFile(path) as one, zipfile.ZipFile(made[1]) as other:
            assert one.namelist() == other.namelist()
            assert all(one.read(name) == other.read(name) for name in one.namelist())


@settings(MANY, max_examples=150)
@given(*BYTES, st.data())
def test_any_one_byte_change_in_a_run_is_found_and_named(made, tmp_path, kind, where, byte, data):
    run, _ = made
    files = sorted(p.relative_to(run).as_posix() for p in run.rglob("*") if p.is_file() and not p.name.startswith("."))
    name = data.draw(st.sampled_from(files))
    path, original = run / name, (run / name).read_bytes()
    path.write_bytes(damage(original, kind, where, byte))
    try:
        if name.endswith(".sig") and kind != "flip":
            # white space around the armour is no part of a signature
            assert not verify(run).good or path.read_bytes().split() == original.split()
        elif name.endswith(".sig") or name.startswith(("signatures/", "MANIFEST")):
            assert not verify(run).good
        else:
            assert compare(run, read_manifest(run)).changed == (name,)
    finally:
        path.write_bytes(original)


def write_by_hand(path: Path, names: list[str], content: bytes = b"x") -> Path:
    """A bundle as the writer makes it, but with names that it would refuse."""
    out, entries = b"", []
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    packed = packer.compress(content) + packer.flush()
    for name in names:
        entry = Entry(name, zlib.crc32(content), len(packed), len(content), len(out))
        entries.append(entry)
        out += entry.local() + packed
    path.write_bytes(seal(out + bundles._ending(entries)))
    return path


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["run/../../evil"], "not a valid file name"),
        (["/etc/passwd"], "not a valid file name"),
        (["run/a\\..\\b"], "not a valid file name"),
        (["C:/run"], "not a valid file name"),
        (["run/.ssh/authorized_keys"], "not a valid file name"),
        (["run"], "not a valid file name"),
        (["run//a"], "not a valid file name"),
        (["run/a", "run/a"], "duplicate names, or names not in order"),
        (["run/b", "run/a"], "duplicate names, or names not in order"),
        (["other/a", "run/a"], "not a valid file name"),
        (["run/a", "run/a/b"], "file and a folder at once"),
        ([], "is empty"),
    ],
)
def test_names_that_lead_elsewhere_or_stand_twice_are_refused(tmp_path, names, words):
    path = write_by_hand(tmp_path / "evil.zip", names)
    (tmp_path / "into").mkdir()
    with pytest.raises(Damaged, match=words):
        extract_bundle(path, tmp_path / "into")
    assert not (tmp_path / "evil").exists()
    assert not verify(path).good


def test_absurd_sizes_are_refused_before_anything_is_written(tmp_path, monkeypatch):
    path = write_by_hand(tmp_path / "bomb.zip", ["run/a", "run/b"], bytes(5_000_000))
    monkeypatch.setattr(bundles, "MAX_TOTAL_BYTES", 9_000_000)
    into = tmp_path / "into"
    into.mkdir()
    with pytest.raises(Damaged, match="too large for a run"):
        extract_bundle(path, into)
    assert list(into.iterdir()) == []


def test_a_file_that_unpacks_to_more_than_it_says_is_stopped(tmp_path):
    content = bytes(5_000_000)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(content) + packer.flush()
    entry = Entry("run/a", zlib.crc32(b"x"), len(packed), 1, 0)
    path = tmp_path / "bomb.zip"
    path.write_bytes(seal(entry.local() + packed + bundles._ending([entry])))
    into = tmp_path / "into"
    into.mkdir()
    with pytest.raises(Damaged, match="larger than it says"):
        extract_bundle(path, into)
    assert (into / "run/a").stat().st_size <= 1


def test_what_hides_between_or_before_files_is_refused(made, tmp_path):
    """ZIP programs skip what no directory names; here nothing may be skipped."""
    content = made[1].read_bytes()[:-64]
    (tmp_path / "into").mkdir()
    for changed in (b"#!/bin/sh\n" + content, content.replace(b"PK\x05\x06", b"hidden" + b"PK\x05\x06")):
        path = tmp_path / "x.zip"
        path.write_bytes(seal(changed))
        with pytest.raises(Damaged):
            extract_bundle(path, tmp_path / "into")


def test_headers_that_tell_another_name_are_refused(made, tmp_path):
    """A program that reads local headers must not see other names than one that reads the directory."""
    content = made[1].read_bytes()[:-64]
    at = content.index(b"/report.html")
    path = tmp_path / "x.zip"
    path.write_bytes(seal(content[:at] + b"/rep0rt.html" + content[at + 12 :]))
    (tmp_path / "into").mkdir()
    with pytest.raises(Damaged, match="its header is not"):
        extract_bundle(path, tmp_path / "into")


def test_more_files_than_a_plain_zip_can_count(tmp_path):
    files = {f"raw/{n:06d}": b"" for n in range(70_000)}
    path = tmp_path / "many.zip"
    write_bundle(path, "run", files)
    with zipfile.ZipFile(path) as archive:
        assert len(archive.namelist()) == 70_000
    with path.open("rb") as file:
        assert len(bundles._read(file)) == 70_000
    assert struct.unpack("<H", path.read_bytes()[-64 - len(bundles._COMMENT) - 12 :][:2]) == (0xFFFF,)


def test_an_unsigned_run_can_be_bundled_but_does_not_verify(tmp_path):
    run = reported_run(tmp_path / "run")
    made = bundle_run(run, tmp_path)
    assert made.path == tmp_path / "2026-11-21T10-15-00Z-tcp10.zip"
    assert made.signatures == ()
    found = verify(made.path)
    assert found.intact
    assert not found.good
    assert not (run / "MANIFEST.sha256").exists()


def test_a_run_that_changed_since_it_was_signed_is_not_bundled(tmp_path):
    run = reported_run(tmp_path / "run")
    sign(run, make_key(tmp_path / "key"))
    (run / "new").write_text("x")
    with pytest.raises(ConfigError, match=r"was changed since it was signed: new: added; see: toolkit verify"):
        bundle_run(run)


def test_places_that_cannot_hold_the_bundle(tmp_path):
    run = reported_run(tmp_path / "run")
    with pytest.raises(ConfigError, match="lies in the run itself"):
        bundle_run(run, run / "x.zip")
    with pytest.raises(ConfigError, match="No such file or directory; give another place: -o FILE"):
        bundle_run(run, tmp_path / "none" / "x.zip")
    (run / "raw" / "a:b").write_text("x")
    with pytest.raises(ConfigError, match="not a valid file name in a bundle; take it out of the run"):
        bundle_run(run)
