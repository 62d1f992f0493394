"""Indices of apt as a mirror's plan reads them, and what is printed of a tool that fails."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from toolkit.errors import UsageFault
from toolkit.mirror import tools
from toolkit.mirror.apt_index import Index, listed
from toolkit.mirror.sources import by_words, distribution

PACKAGES = """\
Package: g++
Version: 4:12.2.0-3
Essential: no
Architecture: amd64
Provides: c++-compiler (= 1), c++abi2-dev
Description: a compiler
 Version: 9 is no field
Filename: pool/main/g/g++_12.2.0-3_amd64.deb
Size: 100
SHA256: aa

Package: bash
Version: 5.2
Essential: yes
Architecture: amd64
Filename: ./bash.deb
Size: 7
SHA256: bb
"""
URIS = """\
Reading package lists...
'http://d/debian/pool/main/g/g%2b%2b_12.2.0-3_amd64.deb' g++_4%3a12.2.0-3_amd64.deb 100 MD5Sum:1
'http://d/debian/./bash.deb' bash_5.2_amd64.deb 7 SHA256:bb
"""


def test_what_apt_would_fetch_is_found_in_the_index_with_its_sha256() -> None:
    """apt prints MD5 sums, and quotes names; the index has neither."""
    index = Index()
    index.read("http://d/debian/", PACKAGES.splitlines())
    assert [index.by_url[url].sha256 for url in listed(URIS)] == ["aa", "bb"]
    assert index.essential == {"bash"}
    assert index.has("g++", "4:12.2.0-3")
    assert not index.has("g++", "9")
    assert not index.has("gcc", "")
    assert index.has("c++-compiler", "")
    assert not index.has("c++-compiler", "1")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            "E: Release file for http://d/InRelease is not valid yet (invalid for another 3h)",
            "the clock of this machine",
        ),
        ("E: Release file for http://d/InRelease is expired (invalid since 2d)", "the clock of this machine is wrong"),
        ("Curl error (60): SSL certificate is not yet valid", "the clock of this machine is wrong"),
        ("E: You don't have enough free space in /m", "the disk is full"),
        ("E: Unable to locate package x", "apt-get failed: E: Unable to locate package x"),
    ],
)
def test_one_sentence_says_what_is_wrong(said: str, words: str) -> None:
    text = tools.explained("apt-get", subprocess.CompletedProcess([], 100, b"", said.encode()))
    assert words in text
    assert "\n" not in text


def test_a_system_that_this_machine_does_not_run_needs_a_file_of_sources(tmp_path: Path) -> None:
    with pytest.raises(UsageFault, match=r"nodes of el9, and this machine runs .*--sources el9=FILE"):
        distribution("el9", {})
    with pytest.raises(UsageFault, match=r"--sources el9=.*: cannot be read: No such file"):
        distribution("el9", {"el9": tmp_path / "none.repo"})
    with pytest.raises(UsageFault, match="did you mean el9"):
        by_words(("el8=x",), "--sources", ("el9", "debian12"))
    with pytest.raises(UsageFault, match="has the form NAME=VALUE"):
        by_words(("el9",), "--sources")
