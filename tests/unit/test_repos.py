"""What role repos writes for each system, what it refuses, and how it tells a failure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from tests.support.node_modules import load, load_filters

ROOT = Path(__file__).parents[2]
FILTERS = load_filters("repos")
VARS = yaml.safe_load((ROOT / "roles/repos/vars/main.yml").read_text())
CATALOGUE: dict[str, Any] = {**VARS["__repos_catalogue"], "site": {"description": "s", "url": "", "key_url": ""}}
CATALOGUE["cuda"] = {**CATALOGUE["cuda"], "yum": {"el9": {"excludepkgs": "mft* kernel-mft*"}}}
CUDA = "https://developer.download.nvidia.com/compute/cuda/repos"
DOCA = "https://linux.mellanox.com/public/repo/doca"
TOOLKIT = "https://nvidia.github.io/libnvidia-container/stable"
SYSTEMS = ("debian12", "debian13", "ubuntu2204", "ubuntu2404", "el9")
#: Source: the vendors' install guides, as the project's reference has them.
URLS = {
    "cuda": {
        "debian12": f"{CUDA}/debian12/x86_64/",
        "debian13": f"{CUDA}/debian13/x86_64/",
        "ubuntu2204": f"{CUDA}/ubuntu2204/x86_64/",
        "ubuntu2404": f"{CUDA}/ubuntu2404/x86_64/",
        "el9": f"{CUDA}/rhel9/x86_64/",
    },
    "nvidia-container-toolkit": {s: f"{TOOLKIT}/deb/amd64/" for s in SYSTEMS} | {"el9": f"{TOOLKIT}/rpm/x86_64/"},
    "docker": {
        "debian12": "https://download.docker.com/linux/debian/",
        "debian13": "https://download.docker.com/linux/debian/",
        "ubuntu2204": "https://download.docker.com/linux/ubuntu/",
        "ubuntu2404": "https://download.docker.com/linux/ubuntu/",
        "el9": "https://download.docker.com/linux/rhel/9/x86_64/stable/",
    },
    "doca": {
        "debian12": f"{DOCA}/3.2.3/debian12.5/x86_64/",
        "ubuntu2204": f"{DOCA}/3.2.3/ubuntu22.04/x86_64/",
        "ubuntu2404": f"{DOCA}/3.2.3/ubuntu24.04/x86_64/",
        "el9": f"{DOCA}/3.2.3/rhel9/x86_64/",
    },
}
KEYS = {
    "cuda": {s: f"{CUDA}/{s}/x86_64/3bf863cc.pub" for s in ("debian12", "ubuntu2204", "ubuntu2404")}
    | {"debian13": f"{CUDA}/debian13/x86_64/8793F200.pub", "el9": f"{CUDA}/rhel9/x86_64/D42D0685.pub"},
    "docker": {
        "debian12": "https://download.docker.com/linux/debian/gpg",
        "ubuntu2404": "https://download.docker.com/linux/ubuntu/gpg",
        "el9": "https://download.docker.com/linux/rhel/gpg",
    },
}


def plan(*names: str, system: str = "ubuntu2404", **changes: Any) -> list[dict[str, Any]]:
    wanted = {
        "system": system,
        "machine": "x86_64",
        "release": "9.4",
        "mirror": "",
        "urls": {},
        "key_urls": {},
        "fingerprints": {},
        "doca_version": "3.2.3",
        **changes,
    }
    return FILTERS["repos_plan"](list(names), CATALOGUE, wanted)


@pytest.mark.parametrize(("name", "system"), [(n, s) for n, urls in URLS.items() for s in urls])
def test_addresses_are_those_of_the_vendors(name: str, system: str):
    assert plan(name, system=system)[0]["url"] == URLS[name][system]


@pytest.mark.parametrize(("name", "system"), [(n, s) for n, urls in KEYS.items() for s in urls])
def test_keys_are_taken_from_the_vendors(name: str, system: str):
    assert plan(name, system=system)[0]["key_url"] == KEYS[name][system]


def test_every_fingerprint_belongs_to_the_key_file_of_its_name():
    for name, system in ((n, s) for n, urls in URLS.items() for s in urls):
        repo = plan(name, system=system)[0]
        if (name, system) == ("doca", "el9"):
            assert repo["fingerprints"] == [], "not confirmed: the site has to state it"
            continue
        assert [len(f) for f in repo["fingerprints"]] == [40]
        key_id = Path(repo["key_url"]).stem.upper()
        assert name != "cuda" or repo["fingerprints"][0].endswith(key_id)


def test_other_machines_and_older_doca():
    assert plan("cuda", machine="aarch64")[0]["url"].endswith("/ubuntu2404/sbsa/")
    assert plan("doca", machine="aarch64")[0]["url"].endswith("/ubuntu24.04/arm64-sbsa/")
    assert plan("doca", system="el9", doca_version="2.9.4")[0]["url"] == f"{DOCA}/2.9.4/rhel9.4/x86_64/"
    assert plan("nvidia-container-toolkit", machine="aarch64")[0]["url"] == f"{TOOLKIT}/deb/arm64/"


@pytest.mark.parametrize("system", ["debian13", "el9"])
def test_a_mirror_has_everything_at_one_place(system: str):
    repos = plan("cuda", "doca", system=system, mirror="http://mirror.example.net/x/", doca_version="")
    assert [r["url"] for r in repos] == [f"http://mirror.example.net/x/{n}/{system}/" for n in ("cuda", "doca")]


def test_an_inventory_replaces_addresses_keys_and_fingerprints():
    changes = {"urls": {"cuda": "http://a/b"}, "key_urls": {"cuda": "http://k"}, "fingerprints": {"cuda": ["A", "B"]}}
    repo = plan("cuda", **changes)[0]
    assert (repo["url"], repo["key_url"], repo["fingerprints"]) == ("http://a/b/", "http://k", ["A", "B"])


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("cudda", {}, "repos_enabled names 'cudda'; there are cuda, distribution, doca"),
        ("doca", {"system": "debian13"}, "no repository 'doca' for debian13: set repos_urls"),
        ("doca", {"doca_version": ""}, "which DOCA"),
        ("site", {}, "no repository 'site'"),
        ("epel", {"system": "debian12"}, "no repository 'epel' for debian12"),
    ],
)
def test_what_there_is_not_is_refused(name: str, changes: dict[str, Any], message: str):
    with pytest.raises(AnsibleFilterError, match=message):
        plan(name, **changes)


def files(system: str, *names: str, pins: tuple[dict[str, Any], ...] = (), **changes: Any) -> dict[str, Any]:
    repos = plan(*names, system=system, **changes)
    listed = FILTERS["repos_files"](repos, dict.fromkeys(names, "KEY"), CATALOGUE, pins, system)
    return {f["path"]: f.get("content") for f in listed}


def test_deb822_of_a_flat_repository_and_of_a_suite():
    written = files("debian12", "doca", "docker")
    doca = written["/etc/apt/sources.list.d/elastic-ai-doca.sources"].splitlines()
    assert doca[2:] == [
        "Types: deb",
        f"URIs: {DOCA}/3.2.3/debian12.5/x86_64/",
        "Suites: ./",
        "Architectures: amd64",
        "Signed-By: /etc/apt/keyrings/elastic-ai-doca.asc",
    ]
    docker = written["/etc/apt/sources.list.d/elastic-ai-docker.sources"]
    assert "Suites: bookworm\nComponents: stable\n" in docker
    assert written["/etc/apt/keyrings/elastic-ai-docker.asc"] == "KEY"


def test_what_is_not_enabled_any_more_goes():
    written = files("debian12", "docker")
    gone = [p for p, content in written.items() if content is None]
    assert "/etc/apt/sources.list.d/elastic-ai-cuda.sources" in gone
    assert "/etc/apt/keyrings/elastic-ai-site.asc" in gone
    assert "/etc/apt/preferences.d/elastic-ai-repos" in gone


def test_yum_sections_check_signatures_and_keep_names_apart():
    written = files("el9", "cuda", "doca", "nvidia-container-toolkit", "docker")
    cuda = written["/etc/yum.repos.d/elastic-ai-cuda.repo"].splitlines()
    assert "[elastic-ai-cuda]" in cuda
    assert {"gpgcheck=1", "excludepkgs=mft* kernel-mft*"} <= set(cuda)
    assert "gpgkey=file:///etc/pki/rpm-gpg/elastic-ai-cuda.asc" in cuda
    for name in ("cuda", "doca", "nvidia-container-toolkit", "docker"):
        text = written[f"/etc/yum.repos.d/elastic-ai-{name}.repo"]
        assert "gpgcheck=1" in text.replace("repo_gpgcheck", "gpgcheck"), "something of it is signed, and checked"
    assert "priority=50" in written["/etc/yum.repos.d/elastic-ai-doca.repo"]
    assert not any(path.startswith("/etc/apt") for path in written)


def test_preferences_say_why():
    pin = {"packages": "dkms", "pin": "release o=Debian", "priority": 900, "why": "Because."}
    text = files("debian12", "docker", pins=(pin,))["/etc/apt/preferences.d/elastic-ai-repos"]
    assert text == "# Because.\nPackage: dkms\nPin: release o=Debian\nPin-Priority: 900\n"


def test_only_entries_of_the_same_repositories_are_put_out_of_action():
    found = [
        "/etc/apt/sources.list.d/cuda-debian12-x86_64.list",
        "/etc/apt/sources.list.d/docker.list",
        "/etc/apt/sources.list.d/cuda-x/evil.list",
        "/var/lib/apt/lists/x_InRelease",
    ]
    moved = load("plugins/plugin_utils/repos.py").repos_moved(found, VARS["__repos_legacy"], plan("cuda"))
    assert [m["path"] for m in moved] == found[:1]
    assert all(line.startswith("#") for m in moved for line in m["content"].splitlines())


def test_of_a_mirror_with_the_distribution_every_other_entry_of_the_node_is_put_out() -> None:
    """Nothing else can be reached. Role repos's own files stay, and the mirror's address comes with a suite of it."""
    wanted = plan("distribution", system="debian12", mirror="http://m/packages", fingerprints={"distribution": "AB"})
    assert (wanted[0]["url"], wanted[0]["suite"], wanted[0]["components"]) == (
        "http://m/packages/distribution/debian12/", "bookworm", "main"
    )  # fmt: skip
    lists = "/etc/apt/sources.list.d"
    found = ["/etc/apt/sources.list", f"{lists}/0000debian.sources", f"{lists}/elastic-ai-distribution.sources"]
    moved = load("plugins/plugin_utils/repos.py").repos_moved(found, VARS["__repos_legacy"], wanted)
    assert [one["path"] for one in moved] == found[:2]


def test_unread_repositories_are_found_by_the_names_of_apts_list_files():
    repos = plan("cuda", "docker", "doca")
    there = ["/var/lib/apt/lists/developer.download.nvidia.com_compute_cuda_repos_ubuntu2404_x86%5f64_InRelease"]
    assert FILTERS["repos_unread"](repos, there) == ["docker", "doca"]
    assert FILTERS["repos_lists"](repos)[0] == there[0].replace("InRelease", "*Release")
    assert FILTERS["repos_unread"](plan("cuda", system="el9"), []) == []
    contents = ["", files("debian12", "docker")["/etc/apt/sources.list.d/elastic-ai-docker.sources"]]
    assert FILTERS["repos_read_of"](contents) == ["/var/lib/apt/lists/download.docker.com_linux_debian_*"]


GOOD = {"fingerprint": "A" * 40, "created": "2020-01-01T00:00:00Z", "expires": "", "self_signature_hashes": ["sha512"]}


@pytest.mark.parametrize(
    ("system", "declared", "key", "message"),
    [
        ("debian12", "A" * 40, {}, ""),
        ("debian12", " ".join(["aaaa"] * 10), {}, ""),
        ("debian12", ["B" * 40, "A" * 40], {}, ""),
        ("debian12", "B" * 40, {}, f"fingerprint {'A' * 40}, and {'B' * 40} is declared"),
        ("debian12", "A" * 40, {"expires": "2020-06-01T00:00:00Z"}, "expired 2020-06-01"),
        ("debian12", "A" * 40, {"expires": "2999-06-01T00:00:00Z"}, ""),
        ("debian12", "A" * 40, {"self_signature_hashes": ["sha1"]}, ""),
        ("debian13", "A" * 40, {"self_signature_hashes": ["sha1"]}, "only SHA-1 self-signatures"),
        ("debian13", "A" * 40, {"self_signature_hashes": ["sha1", "sha256"]}, ""),
    ],
)
def test_keys_are_refused_with_the_reason(system: str, declared: Any, key: dict[str, Any], message: str):
    repos = plan("cuda", system=system, fingerprints={"cuda": declared})
    faults = FILTERS["repos_key_faults"](repos, {"cuda": [{**GOOD, **key}]}, 1.8e9)
    assert len(faults) == (1 if message else 0)
    assert not message or message in faults[0]


def test_an_unknown_fingerprint_is_asked_for_by_the_variables_name():
    repos = plan("doca", system="el9")
    (fault,) = FILTERS["repos_key_faults"](repos, {"doca": [GOOD]}, 1.8e9)
    assert "set repos_fingerprints: {doca: ...}" in fault
    assert "A" * 40 in fault


def test_what_was_there_before_comes_back():
    contents = {"/etc/apt/sources.list.d/elastic-ai-cuda.sources": "old\n", "/etc/apt/keyrings/elastic-ai-cuda.asc": ""}
    changed = [*contents, "/etc/apt/sources.list.d/docker.list"]
    assert FILTERS["repos_before"](changed, contents) == [
        {"path": changed[0], "content": "old\n"},
        {"path": changed[1], "state": "absent"},
        {"path": changed[2], "state": "absent"},
    ]


URL = "http://m.example.net/cuda/debian12"
#: As apt of Debian 12 and 13 words them.
NO_KEY = f"W: GPG error: {URL}  InRelease: The following signatures couldn't be verified: NO_PUBKEY 2F9CCED7DE1A7513"
SQV = f"E: Failed to fetch {URL}/InRelease  Sub-process /usr/bin/sqv returned an error code (1)"
NO_FILE = f"E: The repository '{URL}  Release' does not have a Release file."
LOCK = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 4711 (apt-get)"
CLOCK = f"E: Release file for {URL}/InRelease is not valid yet (invalid for another 3h 2min 1s)."
FOREIGN = "E: The repository 'http://old.example.net x Release' does not have a Release file."


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (NO_KEY, f"repository 'cuda' ({URL}/) cannot be read: its index is not signed by the declared key"),
        (SQV, f"repository 'cuda' ({URL}/) cannot be read: its index is not signed by the declared key"),
        (NO_FILE, f"repository 'cuda' ({URL}/) cannot be read: it cannot be reached or is no such repository"),
        (CLOCK, f"repository 'cuda' ({URL}/) cannot be read: the clock of the node is wrong, or that of the mirror"),
        (LOCK, "in use by another run: E: Could not get lock"),
        (FOREIGN, "the node has an entry below /etc/apt/sources.list.d or /etc/yum.repos.d that is not from here"),
    ],
)
def test_a_failed_update_is_told_in_one_sentence_with_its_cause(said: str, message: str):
    repos = plan("cuda", system="debian12", mirror="http://m.example.net")
    told = FILTERS["repos_refusal"](f"Failed to update apt cache: \nHit:1 x\n{said}\nE: Some index files failed", repos)
    assert message in told
    assert said.split(": ", 1)[1].split()[0] in told
    assert "Hit:1" not in told
    assert "What this run wrote was taken back" in told


def test_nothing_is_written_where_the_system_has_its_own():
    written = files("el9", tls={"certificate": "/c", "key": "/k"})
    assert [path for path, content in written.items() if content] == []
    faults = FILTERS["repos_from_faults"]
    assert faults("system", {"repos_enabled": [], "repos_mirror": ""}) == []
    assert faults("vendors", {"repos_enabled": ["cuda"], "repos_mirror": "http://m"}) == []
    (fault,) = faults("system", {"repos_mirror": "http://m", "repos_enabled": ["cuda"], "repos_urls": {}})
    assert "repos_enabled, repos_mirror is set" in fault


def test_a_certificate_is_for_the_sites_own_servers():
    tls = {"certificate": "/etc/pki/c.pem", "key": "/etc/pki/k.pem", "ca": ""}
    urls = {"docker": "https://Mirror.example.net:8443/d"}
    written = files("debian12", "cuda", "docker", urls=urls, tls=tls)
    assert written["/etc/apt/apt.conf.d/elastic-ai-repos"].splitlines() == [
        'Acquire::https::mirror.example.net::SslCert "/etc/pki/c.pem";',
        'Acquire::https::mirror.example.net::SslKey "/etc/pki/k.pem";',
    ]
    written = files("el9", "cuda", "docker", urls=urls, tls=tls)
    assert "sslclientkey=/etc/pki/k.pem\n" in written["/etc/yum.repos.d/elastic-ai-docker.repo"]
    assert "ssl" not in written["/etc/yum.repos.d/elastic-ai-cuda.repo"]


@pytest.mark.parametrize(
    ("mirror", "tls", "there", "message"),
    [
        ("https://m/", {"certificate": "/c", "key": "/k"}, ["/c", "/k"], ""),
        ("https://m/", {"ca": "/a"}, ["/a"], ""),
        ("", {}, [], ""),
        ("https://m/", {"certificate": "/c"}, ["/c"], "go together"),
        ("https://m/", {"certificate": "/c", "key": "/k"}, ["/c"], "/k is not on the node"),
        ("http://m/", {"ca": "/a"}, ["/a"], "no repository is at an https:// address of the site"),
        ("", {"ca": "/a"}, ["/a"], "no repository is at an https:// address of the site"),
    ],
)
def test_certificates_that_cannot_work_are_refused(mirror: str, tls: dict[str, str], there: list[str], message: str):
    faults = FILTERS["repos_tls_faults"](plan("cuda", mirror=mirror, tls=tls), tls, dict.fromkeys(there, "x"))
    assert bool(faults) is bool(message)
    assert message in "".join(faults)
