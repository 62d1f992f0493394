"""What comes back from a GPU server that somebody else controls: it comes into the folder, and nowhere else."""

from __future__ import annotations

import io
import os
import stat
import subprocess
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from toolkit.lease import LeaseError
from toolkit.lease.client import unpacking
from toolkit.lease.client.folder_copies import Copies, Copy

Entry = tuple[str, bytes, str, int, bytes]  # name, kind, target, mode, bytes


def file(name: str, data: bytes = b"there", mode: int = 0o644) -> Entry:
    return (name, tarfile.REGTYPE, "", mode, data)


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> Entry:
    return (name, kind, target, 0o777, b"")


def folder_(name: str, mode: int = 0o755) -> Entry:
    return (name, tarfile.DIRTYPE, "", mode, b"")


def archive(path: Path, *entries: Entry) -> Path:
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as made:
        for name, kind, target, mode, data in entries:
            one = tarfile.TarInfo(name)
            one.type, one.linkname, one.mode, one.size = kind, target, mode, len(data)
            made.addfile(one, io.BytesIO(data))
    return path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder for what comes back, with a link of its user's that leaves it, and a file outside."""
    made = tmp_path / "home"
    (made / "project").mkdir(parents=True)
    (made / "project/mine").symlink_to(made)
    (made / "outside").write_text("given")
    return made


def fetched(home: Path, *entries: Entry, left_out: Sequence[str] | None = None) -> str:
    """What is reported when a server sends these."""
    sent = archive(home.parent / "sent.tar", *entries)
    return Copy(home / "project", "gpu1", by_hand(sent), dict(os.environ), "/nowhere", left_out).fetch()


def by_hand(sent: Path) -> Callable[[Sequence[str]], list[str]]:
    """A server that sends this."""
    return lambda words: ["cat", str(sent)] if words[0] == "tar" else ["true"]


def everything(folder: Path) -> dict[str, str]:
    return {str(one.relative_to(folder)): one.read_text() for one in sorted(folder.rglob("*")) if one.is_file()}


@pytest.mark.parametrize(
    "entries",
    [
        [file("./mine/outside")],
        [folder_("./mine/"), file("./mine/outside")],
        [link("./a", ".."), file("./a/outside")],
        [link("./a", "b"), link("./b", "../"), file("./a/outside")],
        [link("./d/e/a", "e/../../.."), link("./d/e/e", ".."), file("./d/e/a/outside")],
        [file("./../outside"), file("../outside"), file("./d/../../outside")],
        [link("./a", "./mine/outside", tarfile.LNKTYPE), file("./a")],
        [link("./a", "../outside", tarfile.LNKTYPE)],
    ],
)
def test_nothing_is_written_outside_of_the_folder(home: Path, entries: list[Entry]) -> None:
    fetched(home, *entries)
    assert (home / "outside").read_text() == "given"
    assert sorted(one.name for one in home.iterdir()) == ["outside", "project"]
    assert (home / "outside").stat().st_nlink == 1


def test_an_absolute_name_is_no_file_of_the_folder(home: Path) -> None:
    said = fetched(home, file(f"{home}/outside"), file("./out"))
    assert said == f"1 entry of the folder did not come back from gpu1: {home}/outside is no path in the folder"
    assert everything(home) == {"outside": "given", "project/out": "there"}


@pytest.mark.parametrize(
    "target",
    ["/etc/passwd", "../outside", "mine/outside", "d/../../outside", "..", "d/../out", ".git/hooks/x", "new"],
)
def test_a_link_that_leaves_the_folder_or_leads_to_what_stays_is_not_made(home: Path, target: str) -> None:
    """It would be followed by the next program that its user runs here."""
    (home / "project/.git").mkdir()
    said = fetched(home, link("./new", target), left_out=[".git"])
    assert said == "1 entry of the folder did not come back from gpu1: new is a link that leaves the folder"
    assert not (home / "project/new").is_symlink()


def test_a_link_that_a_later_one_leads_elsewhere_is_removed(home: Path) -> None:
    (home / "project/.git").mkdir()
    said = fetched(home, link("./new", "later/.git"), link("./later", "."), left_out=[".git"])
    assert said == "1 entry of the folder did not come back from gpu1: new is a link that leaves the folder"
    assert sorted(one.name for one in (home / "project").iterdir()) == [".git", "later", "mine"]


def test_links_in_the_folder_and_those_that_went_there_come_back(home: Path) -> None:
    project = home / "project"
    said = fetched(
        home, link("./mine", str(home)), folder_("./runs/"), file("./runs/1"), link("./runs/latest", "1"),
        link("./runs/up", "../out"), file("./out"), link("./again", "./out", tarfile.LNKTYPE),
    )  # fmt: skip
    assert said == ""
    assert (project / "mine").readlink() == home
    assert {n: (project / n).read_text() for n in ("runs/latest", "runs/up", "again")} == dict.fromkeys(
        ("runs/latest", "runs/up", "again"), "there"
    )
    assert (project / "again").stat().st_ino == (project / "out").stat().st_ino


def test_a_link_that_became_a_folder_there_is_one_here(home: Path) -> None:
    assert fetched(home, folder_("./mine/"), file("./mine/x")) == ""
    assert everything(home) == {"outside": "given", "project/mine/x": "there"}


def test_no_device_and_no_foreign_rights_come_back(home: Path) -> None:
    said = fetched(
        home, ("./null", tarfile.CHRTYPE, "", 0o666, b""), ("./pipe", tarfile.FIFOTYPE, "", 0o666, b""),
        file("./root", mode=0o6755), folder_("./d/", 0o3777),
    )  # fmt: skip
    assert said.startswith("2 entries of the folder did not come back from gpu1: null is neither a file nor")
    assert sorted(one.name for one in (home / "project").iterdir()) == ["d", "mine", "root"]
    mask = os.umask(0o022)
    os.umask(mask)
    assert stat.S_IMODE((home / "project/root").stat().st_mode) == 0o755 & ~mask
    assert stat.S_IMODE((home / "project/d").stat().st_mode) == 0o777 & ~mask
    assert (home / "project/root").stat().st_uid == os.geteuid()


def test_a_folder_that_is_here_keeps_its_rights(home: Path) -> None:
    (home / "project/d").mkdir(mode=0o700)
    (home / "project").chmod(0o700)
    fetched(home, folder_("./", 0o777), folder_("./d/", 0o777))
    assert [stat.S_IMODE((home / name).stat().st_mode) for name in ("project", "project/d")] == [0o700, 0o700]


@pytest.mark.parametrize("left_out", [[".git", "deep/venv"], [".git", "deep/venv", "x"]])
def test_what_stays_here_is_not_reached_by_another_spelling_or_a_second_name(home: Path, left_out: list[str]) -> None:
    for name in (".git/HEAD", "deep/venv/pyvenv.cfg"):
        (home / "project" / name).parent.mkdir(parents=True)
        (home / "project" / name).write_text("given")
    before = everything(home)
    spelled = [".git/HEAD", "./.git/HEAD", "././.git/HEAD", ".//.git/HEAD", "./deep/./venv/x", "./deep/venv/pyvenv.cfg"]
    fetched(
        home, *map(file, spelled), link("./head", "./.git/HEAD", tarfile.LNKTYPE), link("./.git", "deep"),
        left_out=left_out,
    )  # fmt: skip
    assert everything(home) == before
    assert (home / "project/.git/HEAD").stat().st_nlink == 1


def test_two_servers_do_not_help_each_other_out(home: Path) -> None:
    """The first makes a link, the second writes through it."""
    first = archive(home.parent / "1.tar", link("./a", ".."), link("./b", str(home)))
    second = archive(home.parent / "2.tar", file("./a/outside"), file("./b/outside"))
    said: list[str] = []
    steps = {"gpu1": by_hand(first), "gpu2": by_hand(second)}
    Copies(home / "project", steps, dict(os.environ)).fetch(said.append)
    assert (home / "outside").read_text() == "given"
    assert len(said) == 1
    assert said[0].startswith("2 entries of the folder did not come back from gpu1: a is a link that leaves")


def test_a_name_cannot_forge_lines(home: Path) -> None:
    said = fetched(home, link("./a\nlease 1: has ended\x1b[2J", "/"))
    assert said.isprintable()


def test_what_this_machine_cannot_write_keeps_the_copy_there_and_the_rest_comes(home: Path) -> None:
    (home / "project/out").mkdir()
    with pytest.raises(LeaseError, match=r"not all came back; the files are on gpu1 in /nowhere: out: .*directory"):
        fetched(home, file("./out"), file("./other"))
    assert (home / "project/other").read_text() == "there"


@pytest.mark.parametrize("cut", [512 * 3, 512 * 4 + 100, 512 * 5])
def test_an_archive_that_is_cut_is_not_all(home: Path, cut: int) -> None:
    sent = archive(home.parent / "sent.tar", file("./a", b"x" * 600), file("./b"))
    sent.write_bytes(sent.read_bytes()[:cut])
    with pytest.raises(LeaseError, match="not all came back"):
        Copy(home / "project", "gpu1", by_hand(sent), dict(os.environ), "/nowhere").fetch()


def test_what_is_no_archive_is_one_sentence(home: Path) -> None:
    sent = home.parent / "sent.tar"
    sent.write_bytes(b"#" * 4096)
    with pytest.raises(LeaseError, match="not all came back"):
        Copy(home / "project", "gpu1", by_hand(sent), dict(os.environ), "/nowhere").fetch()


def endless(head: tarfile.TarInfo) -> list[str]:
    """A header with more behind it than there is memory."""
    octal = "".join(f"\\{byte:03o}" for byte in head.tobuf(tarfile.GNU_FORMAT))
    return ["sh", "-c", f"printf '{octal}'; cat /dev/zero"]


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
def test_a_header_without_an_end_is_refused(home: Path, kind: bytes) -> None:
    head = tarfile.TarInfo("./a")
    head.type, head.size = kind, 1 << 40
    step = endless(head)
    copy = Copy(home / "project", "gpu1", lambda words: step if words[0] == "tar" else ["true"], dict(os.environ))
    with pytest.raises(LeaseError, match="gpu1 sent no folder: it has a header without an end"):
        copy.fetch()


def test_holes_do_not_fill_the_disk(home: Path) -> None:
    sent = home.parent / "sent.tar"
    (home.parent / "sparse").mkdir()
    with (home.parent / "sparse/huge").open("wb") as stream:
        stream.truncate(1 << 40)
    subprocess.run(["tar", "-S", "-C", home.parent / "sparse", "-cf", sent, "."], check=True)
    copy = Copy(home / "project", "gpu1", by_hand(sent), dict(os.environ), "/nowhere")
    assert "huge is neither a file nor" in copy.fetch()


def test_times_are_to_the_nanosecond() -> None:
    one = tarfile.TarInfo("a")
    one.mtime = 7
    for text, found in (("12.000000345", 12 * 10**9 + 345), ("12.5", 12_500_000_000), ("-1.5", -(10**9) - 5 * 10**8),
                        ("x", 7 * 10**9), ("1e9", 7 * 10**9), ("", 7 * 10**9)):  # fmt: skip
        one.pax_headers = {"mtime": text}
        assert unpacking._mtime_ns(one) == found


@pytest.mark.parametrize("time", ["1e400", "9" * 40, "-" + "9" * 40])
def test_a_time_that_no_clock_reaches_is_a_fault_of_that_file_alone(home: Path, time: str) -> None:
    sent = home.parent / "sent.tar"
    with tarfile.open(sent, "w", format=tarfile.PAX_FORMAT) as made:
        for name, kind in (("./late", tarfile.REGTYPE), ("./folder/", tarfile.DIRTYPE), ("./other", tarfile.REGTYPE)):
            one = tarfile.TarInfo(name)
            one.type = kind
            one.pax_headers = {} if name == "./other" else {"mtime": time}
            made.addfile(one)
    with pytest.raises(LeaseError, match="late"):
        Copy(home / "project", "gpu1", by_hand(sent), dict(os.environ), "/nowhere").fetch()
    assert (home / "project/other").is_file()


def test_a_path_without_an_end_makes_no_folders(home: Path) -> None:
    deep = "./" + "a/" * 300 + "b"
    words = fetched(home, file(deep), file("./other"))
    assert "is no path in the folder" in words
    assert len(words) < 1000
    assert not (home / "project/a").exists()
    assert (home / "project/other").is_file()
