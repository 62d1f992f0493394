"""Entries that others wrote for the vendors' repositories: found by address in every form, and nothing else touched."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.node_modules import load
from tests.unit.test_repos import FILTERS, VARS, files, plan

sources = load("plugins/plugin_utils/sources.py")
repos = load("plugins/plugin_utils/repos.py")
MOVED = repos.MOVED
FOLDER = "/etc/apt/sources.list.d"
CUDA = "https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/"
DEBIAN = "deb http://debian.example.net/debian bookworm main\n"
ALL = ("cuda", "nvidia-container-toolkit", "docker", "doca")


def superseded(contents: dict[str, str], *names: str, **changes: Any) -> dict[str, str]:
    wanted = plan(*(names or ALL), system="debian12", **changes)
    listed = sources.repos_superseded(contents, VARS["__repos_legacy"], VARS["__repos_addresses"], wanted)
    assert len({one["path"] for one in listed}) == len(listed), "each file once"
    return {one["path"]: one["content"] for one in listed}


@pytest.mark.parametrize(
    "name",
    [
        "cuda-debian13-x86_64.sources", "nvidia-container-toolkit.sources", "docker.sources", "doca.sources",
        "cuda-debian12-x86_64.list", "cuda.sources", "docker-ce.sources", "libnvidia-container.sources",
    ],
)  # fmt: skip
def test_files_of_the_vendors_names_are_replaced_in_both_forms(name: str) -> None:
    path = f"{FOLDER}/{name}"
    assert superseded({path: "whatever"}) == {path: MOVED}
    assert [one["path"] for one in repos.repos_moved([path], VARS["__repos_legacy"], plan(*ALL))] == [path]


def test_what_was_replaced_comes_back_where_the_systems_own_repositories_count() -> None:
    """Both what was replaced whole and what was edited; a file that the ledger does not list is left alone."""
    ours, edited, foreign = (f"{FOLDER}/{name}" for name in ("cuda.list", "site.list", "copied.list"))
    contents = {
        ours: MOVED, edited: MOVED + DEBIAN, foreign: MOVED + DEBIAN, f"{FOLDER}/other.list": DEBIAN,
        sources.LEDGER: json.dumps({"directories": {}, "files": {ours: {}, edited: {}}}),
    }  # fmt: skip
    back = sources.repos_superseded(contents, VARS["__repos_legacy"], VARS["__repos_addresses"], [])
    assert back == [{"path": ours, "state": "absent"}, {"path": edited, "state": "absent"}]
    assert sources.repos_superseded({ours: MOVED, sources.LEDGER: ""}, {}, {}, []) == []
    assert VARS["__repos_ledger"] == sources.LEDGER


ONE_LINE = {
    "plain": f"deb {CUDA} /",
    "options": f"deb [arch=amd64 signed-by=/usr/share/keyrings/x.gpg] {CUDA} /",
    "blanks in options": f"deb [ arch=amd64,arm64  trusted=yes ] {CUDA} /",
    "sources": f"deb-src [arch=amd64] {CUDA} /",
    "tabs": f"deb\t[arch=amd64]\t{CUDA}\t/",
    "indented": f"   deb {CUDA} /",
    "http": f"deb {CUDA.replace('https', 'http')} /",
    "no slash": f"deb {CUDA.rstrip('/')} /",
    "two slashes": "deb https://developer.download.nvidia.com//compute/cuda/repos/debian12/x86_64 /",
    "host in capitals": f"deb {CUDA.replace('developer', 'Developer')} /",
    "port": f"deb {CUDA.replace('.com/', '.com:443/')} /",
    "user": f"deb {CUDA.replace('https://', 'https://me:word@')} /",
    "through a cache": f"deb {CUDA.replace('https', 'tor+https')} /",
    "another system's": f"deb {CUDA.replace('debian12', 'ubuntu2404')} /",
    "a comment behind": f"deb {CUDA} / # by hand",
    "flat": f"deb {CUDA} ./",
}


@pytest.mark.parametrize("case", ONE_LINE)
def test_a_line_is_known_by_its_address(case: str) -> None:
    """add-apt-repository and people name files as they like."""
    path = f"{FOLDER}/archive_uri-https_developer_download_nvidia_com-bookworm.list"
    assert superseded({path: f"{ONE_LINE[case]}\n"}) == {path: MOVED}
    assert superseded({path: f"# {ONE_LINE[case]}\n"}) == {}


STANZAS = {
    "plain": f"Types: deb\nURIs: {CUDA}\nSuites: /\nSigned-By: /x.gpg\n",
    "other order and case": f"types: deb\nsuites: /\nuris: {CUDA}\n",
    "more lines": f"Types: deb\nURIs:\n {CUDA}\nSuites: /\n",
    "comments": f"# of NVIDIA\nTypes: deb\n# here\nURIs: {CUDA}\nSuites: /\n",
    "switched on": f"Enabled: yes\nTypes: deb\nURIs: {CUDA}\nSuites: /\n",
    "key inside": f"Types: deb\nURIs: {CUDA}\nSuites: /\nSigned-By:\n -----BEGIN PGP-----\n .\n mQ==\n",
    "no end of line": f"Types: deb\nURIs: {CUDA}\nSuites: /",
    "blank lines before": f"\n\nTypes: deb\nURIs: {CUDA}\nSuites: /\n\n",
}


@pytest.mark.parametrize("case", STANZAS)
def test_a_stanza_is_known_by_its_address(case: str) -> None:
    path = f"{FOLDER}/gpu.sources"
    assert superseded({path: STANZAS[case]}) == {path: MOVED}


@pytest.mark.parametrize("word", ["no", "No", "false", "0", "off", "disable", "without"])
def test_a_stanza_that_is_switched_off_stays(word: str) -> None:
    assert superseded({f"{FOLDER}/gpu.sources": f"Enabled: {word}\n{STANZAS['plain']}"}) == {}


def test_other_entries_of_a_file_stay_as_they_were() -> None:
    docker = "deb [arch=amd64] https://download.docker.com/linux/debian bookworm stable\n"
    path = "/etc/apt/sources.list"
    left = superseded({path: f"{DEBIAN}{docker}# end\n"})[path]
    assert left == f"{MOVED}{DEBIAN}# {docker}# end\n"
    assert superseded({path: left}) == {}, "the second run finds nothing"


def test_other_stanzas_and_other_addresses_of_a_stanza_stay() -> None:
    path = f"{FOLDER}/all.sources"
    debian = "Types: deb\nURIs: http://debian.example.net/debian\nSuites: bookworm\n"
    both = f"Types: deb\nURIs: http://mirror.example.net/cuda/\n {CUDA}\nSuites: /\n"
    text = f"{debian}\n{STANZAS['plain']}\n{both}"
    left = superseded({path: text})[path]
    assert debian in left
    assert "# URIs: " + CUDA in left
    assert "URIs: http://mirror.example.net/cuda/\nSuites: /\n" in left
    assert superseded({path: left}) == {}


def test_what_is_not_the_vendors_is_not_touched() -> None:
    others = {
        "/etc/apt/sources.list": DEBIAN,
        f"{FOLDER}/debian.sources": "Types: deb\nURIs: http://debian.example.net/debian\nSuites: bookworm\n",
        f"{FOLDER}/cuda-like.sources2": STANZAS["plain"],  # apt does not read it
        f"{FOLDER}/elastic-ai-cuda.sources": STANZAS["plain"],
        f"{FOLDER}/near.list": "deb https://developer.download.nvidia.com/compute/cuda/repository/ /\n",
        f"{FOLDER}/evil.list": "deb https://example.net/developer.download.nvidia.com/compute/cuda/repos/ /\n",
        f"{FOLDER}/cdrom.list": "deb cdrom:[Debian 12]/ bookworm main\n",
        f"{FOLDER}/empty.list": "",
    }
    assert superseded(others) == {}


def test_repositories_that_are_not_asked_for_stay() -> None:
    assert superseded({f"{FOLDER}/gpu.list": f"deb {CUDA} /\n"}, "docker") == {}


def test_the_mirror_of_the_site_has_the_distribution_beside_ours() -> None:
    urls = {"docker": "http://mirror.example.net/debian/"}
    path = "/etc/apt/sources.list"
    mirror = "deb http://mirror.example.net/debian"
    text = f"{mirror} bookworm-updates main\n{mirror} bookworm stable\n"
    left = superseded({path: text}, "docker", urls=urls)[path]
    first, second = text.splitlines()
    assert left == f"{MOVED}{first}\n# {second}\n"


YUM = """[cuda]
name=cuda
baseurl=https://developer.download.nvidia.com/compute/cuda/repos/rhel9/$basearch
enabled=1

[other]
name=other
baseurl = http://mirror.example.net/other
"""


def test_sections_of_yum_are_known_by_their_address() -> None:
    path = "/etc/yum.repos.d/developer.download.nvidia.com_compute_cuda_repos_rhel9_x86_64_.repo"
    left = superseded({path: YUM}, "cuda")[path]
    assert "\n# [cuda]\n# name=cuda\n" in f"\n{left}"
    assert left.endswith("[other]\nname=other\nbaseurl = http://mirror.example.net/other\n")
    alone = YUM[: YUM.index("[other]")]
    assert superseded({path: alone}, "cuda") == {path: MOVED}
    assert superseded({path: alone.replace("enabled=1", "enabled=0")}, "cuda") == {}


def test_a_failed_run_brings_others_files_back_by_their_originals() -> None:
    path = "/etc/apt/sources.list"
    back = FILTERS["repos_before"]([path], {path: DEBIAN})
    assert back == [{"path": path, "state": "absent"}], "the ledger has it"


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="no apt here")
@pytest.mark.parametrize("form", ["list", "sources"])
def test_the_real_apt_refuses_both_and_takes_ours_alone(tmp_path: Path, form: str) -> None:
    folder = tmp_path / "sources.list.d"
    folder.mkdir()
    (tmp_path / "lists/partial").mkdir(parents=True)
    (tmp_path / "sources.list").write_text(DEBIAN)
    theirs = folder / f"nvidia.{form}"
    options = "[signed-by=/usr/share/keyrings/cuda-archive-keyring.gpg]"
    theirs.write_text(
        f"deb {options} {CUDA} /\n"
        if form == "list"
        else f"Types: deb\nURIs: {CUDA}\nSuites: /\nSigned-By: /usr/share/keyrings/cuda-archive-keyring.gpg\n"
    )
    ours = files("debian12", "cuda")[f"{FOLDER}/elastic-ai-cuda.sources"]
    (folder / "elastic-ai-cuda.sources").write_text(ours)

    def said() -> str:
        command = ["apt-get", "update", "--print-uris", "-o", f"Dir::Etc={tmp_path}", "-o", f"Dir::State={tmp_path}"]
        env = {**os.environ, "LC_ALL": "C", "LANGUAGE": ""}
        ran = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
        return ran.stderr if ran.returncode else f"read: {ran.stdout}"

    assert "Conflicting values set for option Signed-By" in said()
    contents = {f"{FOLDER}/{file.name}": file.read_text() for file in folder.iterdir()}
    for path, text in superseded(contents, "cuda").items():
        (folder / Path(path).name).write_text(text)
    assert said().startswith("read: ")
    assert "compute/cuda" in said()
