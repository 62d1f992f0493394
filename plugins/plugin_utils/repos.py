"""Which third-party repositories a host gets, and the files that say so."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from ansible.errors import AnsibleFilterError

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.openpgp import openpgp_holds

PREFIX = "elastic-ai-"
#: What apt quotes in the names of its list files (URItoFileName in apt-pkg/contrib/strutl.cc).
APT_QUOTED = '\\|{}[]<>"^~_=!@#$%^&*'
#: Systems whose apt verifies by sqv, which trusts no SHA-1 signature that was made or used after this day.
SQV_SYSTEMS = ("debian13", "ubuntu2604")
WEAK_HASHES = {"md5", "sha1", "ripemd160"}
#: What a file that stood in our way says until the role is taken back; apt and dnf read nothing from it.
MOVED = "# Replaced by the repositories of the Elastic AI Toolkit. Its state absent puts this file's original back.\n"

#: What apt and dnf print where a clock is wrong (their sources, and OpenSSL's).
CLOCK = r"(?i)is not valid yet|Release file for .* is expired|certificate is not yet valid|certificate has expired"

PREFERENCES, TLS = f"/etc/apt/preferences.d/{PREFIX}repos", f"/etc/apt/apt.conf.d/{PREFIX}repos"

Repo = dict[str, Any]


def is_apt(system: str) -> bool:
    """Whether the system's packages are Debian's."""
    return system.startswith(("debian", "ubuntu"))


def choose(value: Any, system: str) -> Any:
    """A catalogue's value for one system: a mapping is by system, with "default" for all others."""
    return value.get(system, value.get("default", "")) if isinstance(value, Mapping) else value


def newer(version: str, least: str) -> bool:
    """Whether a version is at least another; true of none, which is the latest."""
    parts = [[int(n) for n in re.findall(r"\d+", text)] for text in (version, least)]
    return not parts[0] or parts[0] >= parts[1]


def expand(text: str, wanted: Mapping[str, Any]) -> str:
    """An address with {arch}, {machine}, {doca_version} and {doca_el} filled in."""
    machine = str(wanted["machine"])
    version = str(wanted["doca_version"])
    major = str(wanted.get("system", "")).removeprefix("el")
    names = {
        "arch": {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine),
        "machine": machine,
        "cuda_machine": {"aarch64": "sbsa"}.get(machine, machine),
        "doca_machine": {"aarch64": "arm64-sbsa"}.get(machine, machine),
        "doca_version": version,
        # Source: the folder names of the DOCA repository; one per minor release before 3.2.0.
        "doca_el": f"rhel{major}" if newer(version, "3.2.0") else f"rhel{wanted['release']}",
    }
    return text.format_map(names)


def repos_plan(enabled: Sequence[str], catalogue: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[Repo]:
    """What each enabled repository is on one system.

    wanted: system (os_key), machine, release, mirror, urls, key_urls, fingerprints (the inventory's), doca_version,
    signed (whether the mirror has signed every index, as one by `toolkit mirror` has), and tls (certificate, key and
    ca, paths on the node), which repositories at the site's own addresses get.
    """
    plan, system = [], str(wanted["system"])
    for name in enabled:
        if name not in catalogue:
            raise AnsibleFilterError(f"repos_enabled names '{name}'; there are {', '.join(sorted(catalogue))}")
        entry = {k: choose(v, system) for k, v in catalogue[name].items()}
        mirror = str(wanted["mirror"]).rstrip("/")
        url = wanted["urls"].get(name) or (f"{mirror}/{name}/{system}/" if mirror else expand(entry["url"], wanted))
        if not url:
            raise AnsibleFilterError(
                f"there is no repository '{name}' for {system}: set repos_urls: {{{name}: ...}} or repos_mirror where "
                f"you have one, or take it out of repos_enabled"
            )
        if name == "doca" and not mirror and not wanted["urls"].get(name) and not wanted["doca_version"]:
            raise AnsibleFilterError("which DOCA? set ofed_version (or repos_doca_version), e.g. 3.2.3")
        declared = wanted["fingerprints"].get(name) or entry.get("fingerprint", "")
        # A vendor is never shown the site's certificate.
        own = bool(mirror or wanted["urls"].get(name) or name == "site") and url.startswith("https://")
        plan.append(
            {
                "name": name,
                "description": entry["description"],
                "system": system,
                "url": url if url.endswith("/") else f"{url}/",
                "suite": entry.get("suite", "/"),
                "components": entry.get("components", ""),
                "key_url": wanted["key_urls"].get(name) or expand(entry["key_url"], wanted),
                "fingerprints": [declared] if isinstance(declared, str) and declared else list(declared or []),
                "yum": {
                    **(entry.get("yum") or {}),
                    **({"repo_gpgcheck": 1} if mirror and wanted.get("signed") else {}),
                },
                "architecture": expand("{arch}", wanted),
                "tls": {key: path for key, path in (wanted.get("tls") or {}).items() if path and own},
            }
        )
    return plan


def key_path(name: str, system: str) -> str:
    """Where the key of a repository lies on a node."""
    return f"/etc/apt/keyrings/{PREFIX}{name}.asc" if is_apt(system) else f"/etc/pki/rpm-gpg/{PREFIX}{name}.asc"


def source_path(name: str, system: str) -> str:
    """Where the entry of a repository lies on a node."""
    return (
        f"/etc/apt/sources.list.d/{PREFIX}{name}.sources" if is_apt(system) else f"/etc/yum.repos.d/{PREFIX}{name}.repo"
    )


def paths_of(names: Iterable[str], system: str) -> list[str]:
    """Where entries and keys of these repositories are."""
    return [path(name, system) for name in sorted(names) for path in (source_path, key_path)]


def repos_paths(names: Iterable[str], system: str) -> list[str]:
    """Every path that the role may write, for repositories of these names."""
    return paths_of(names, system) + ([PREFERENCES, TLS] if is_apt(system) else [])


#: By part of the client's certificate: the option of a .repo file, and apt's below Acquire::https::HOST.
TLS_OPTIONS = {
    "certificate": ("sslclientcert", "SslCert"),
    "key": ("sslclientkey", "SslKey"),
    "ca": ("sslcacert", "CaInfo"),
}


def tls_text(plan: Sequence[Repo]) -> str:
    """apt configuration with the certificates for the hosts of the repositories, '' for none."""
    hosts: dict[str, Mapping[str, str]] = {
        urlsplit(repo["url"]).hostname or "": repo["tls"] for repo in plan if repo.get("tls") and is_apt(repo["system"])
    }
    return "".join(
        f'Acquire::https::{host}::{TLS_OPTIONS[part][1]} "{path}";\n'
        for host, tls in sorted(hosts.items())
        for part, path in sorted(tls.items())
    )


def repos_tls_faults(plan: Sequence[Repo], tls: Mapping[str, str], readable: Mapping[str, str]) -> list[str]:
    """What is wrong with the certificates that repositories are fetched with, each a sentence.

    readable: sha256 by path of those that are on the node.
    """
    faults = []
    parts = {part: path for part, path in tls.items() if path}
    if bool(parts.get("certificate")) != bool(parts.get("key")):
        faults.append("repos_client_certificate and repos_client_key go together: set both, or none")
    if parts and not any(repo["tls"] for repo in plan):
        faults.append(
            "a certificate is set (repos_client_certificate, repos_client_key, repos_ca), and no repository is at an "
            "https:// address of the site: set repos_mirror or repos_urls, or leave the certificate out"
        )
    missing = [path for path in parts.values() if path not in readable]
    if missing:
        faults.append(f"{', '.join(missing)} is not on the node: put it there before repositories are fetched with it")
    return faults


def repos_from_faults(source: str, stated: Mapping[str, Any]) -> list[str]:
    """What contradicts `repos_from: system`: settings that only repositories written by the role have."""
    given = sorted(name for name, value in stated.items() if value) if source == "system" else []
    return (
        [
            f"repos_from is system, so that no repository is written, and {', '.join(given)} is set, which says how to "
            f"write one: take one of both out of the inventory"
        ]
        if given
        else []
    )


def source_text(repo: Repo) -> str:
    """deb822 stanza, or section of a .repo file."""
    lines = ["# Written by the role repos; its changes are lost.", f"# {repo['description']}"]
    if is_apt(repo["system"]):
        lines += ["Types: deb", f"URIs: {repo['url']}", f"Suites: {repo['suite']}"]
        lines += [f"Components: {repo['components']}"] if repo["components"] else []
        lines += [f"Architectures: {repo['architecture']}", f"Signed-By: {key_path(repo['name'], repo['system'])}"]
        return "\n".join(lines) + "\n"
    options = {"gpgcheck": 1, "repo_gpgcheck": 0, **repo["yum"]}
    lines += [f"[{PREFIX}{repo['name']}]", f"name={repo['description']}", f"baseurl={repo['url']}", "enabled=1"]
    lines += [f"gpgkey=file://{key_path(repo['name'], repo['system'])}"]
    lines += [f"{key}={value}" for key, value in sorted(options.items()) if value != ""]
    lines += [f"{TLS_OPTIONS[part][0]}={path}" for part, path in sorted((repo.get("tls") or {}).items())]
    return "\n".join(lines) + "\n"


def preferences_text(pins: Sequence[Mapping[str, Any]]) -> str:
    """apt preferences, '' for none."""
    stanzas = [
        f"# {pin['why']}\nPackage: {pin['packages']}\nPin: {pin['pin']}\nPin-Priority: {pin['priority']}\n"
        for pin in pins
    ]
    return "\n".join(stanzas)


def repos_files(
    plan: Sequence[Repo], keys: Mapping[str, str], names: Iterable[str], pins: Sequence[Mapping[str, Any]], system: str
) -> list[dict[str, Any]]:
    """Files for managed_files: those of the plan, and the absence of all others of the catalogue."""
    present = [
        {"path": path, "content": content}
        for repo in plan
        for path, content in (
            (source_path(repo["name"], system), source_text(repo)),
            (key_path(repo["name"], system), keys[repo["name"]]),
        )
    ]
    chosen = {repo["name"] for repo in plan}
    absent = [{"path": path, "state": "absent"} for path in paths_of(set(names) - chosen, system)]
    if not is_apt(system):
        return present + absent
    texts = {PREFERENCES: preferences_text(pins), TLS: tls_text(plan)}
    own = [{"path": p, "content": text} if text else {"path": p, "state": "absent"} for p, text in texts.items()]
    return [*present, *absent, *own]


def repos_moved(
    found: Iterable[str], legacy: Mapping[str, Sequence[str]], plan: Sequence[Repo]
) -> list[dict[str, Any]]:
    """What stands for entries of the same vendors that others wrote: apt refuses one repository with two keys."""
    patterns = [pattern for repo in plan for pattern in legacy.get(repo["name"], [])]
    wanted = [re.compile(re.escape(p).replace(r"\*", "[^/]*")) for p in patterns]
    others = (path for path in sorted(found) if f"/{PREFIX}" not in path)
    return [{"path": p, "content": MOVED} for p in others if any(w.fullmatch(p) for w in wanted)]


def list_prefix(url: str) -> str:
    """How the names of apt's list files of a repository begin."""
    address = re.sub(r"^[a-z+]+://([^/@]*@)?", "", url).rstrip("/")
    quoted = "".join(f"%{ord(c):02x}" if c in APT_QUOTED else c for c in address)
    return f"/var/lib/apt/lists/{quoted.replace('/', '_')}_"


def repos_lists(plan: Sequence[Repo]) -> list[str]:
    """Globs of the list files that apt has once it has read the repositories."""
    return [f"{list_prefix(repo['url'])}*Release" for repo in plan if is_apt(repo["system"])]


def repos_unread(plan: Sequence[Repo], found: Iterable[str]) -> list[str]:
    """Names of repositories that apt has not read yet."""
    there = list(found)
    apt = [repo for repo in plan if is_apt(repo["system"])]
    return [r["name"] for r in apt if not any(p.startswith(list_prefix(r["url"])) for p in there)]


def repos_read_of(contents: Iterable[str]) -> list[str]:
    """Globs of all list files that apt has of the sources with these texts."""
    urls = [u for text in contents for line in re.findall(r"^URIs:(.*)$", text, re.MULTILINE) for u in line.split()]
    return [f"{list_prefix(url)}*" for url in urls]


def key_fault(repo: Repo, keys: Sequence[Mapping[str, Any]], now_s: float) -> str:
    """Why a repository's key is refused, '' where it is not."""
    name, system = repo["name"], repo["system"]
    found = ", ".join(k["fingerprint"] for k in keys)
    if not repo["fingerprints"]:
        return (
            f"no fingerprint is known for the key of repository '{name}' on {system}; its key file has {found}: "
            f"compare that with what its vendor publishes and set repos_fingerprints: {{{name}: ...}}"
        )
    wanted = {re.sub(r"[\s:]", "", f).upper() for f in repo["fingerprints"]}
    chosen = [k for k in keys if k["fingerprint"] in wanted]
    if not chosen:
        return (
            f"the key of repository '{name}' has the fingerprint {found}, and {', '.join(sorted(wanted))} is declared: "
            f"take the right key, or, where the vendor has announced a new one, set repos_fingerprints: {{{name}: ...}}"
        )
    now = datetime.datetime.fromtimestamp(now_s, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    if all(k["expires"] and k["expires"] < now for k in chosen):
        key = chosen[0]
        return f"the key {key['fingerprint']} of repository '{name}' expired {key['expires']}: take its new one"
    if system in SQV_SYSTEMS and all(not set(k["self_signature_hashes"]) - WEAK_HASHES for k in chosen):
        return (
            f"the key {chosen[0]['fingerprint']} of repository '{name}' has only SHA-1 self-signatures, which apt of "
            f"{system} refuses: use the vendor's repository and key for {system}, or a mirror signed by another key"
        )
    return ""


def repos_undeclared(
    names: Iterable[str], catalogue: Mapping[str, Any], system: str, fingerprints: Mapping[str, Any]
) -> list[str]:
    """Those of the repositories whose key nobody has declared: neither the catalogue, for this system, nor the site."""
    # That of the site is made of its own variables, and a text in the catalogue as it was read.
    entries = {name: catalogue.get(name) for name in names}
    known = {n: choose(e.get("fingerprint", ""), system) if isinstance(e, Mapping) else "" for n, e in entries.items()}
    return [name for name in known if not known[name] and not fingerprints.get(name)]


def repos_key_faults(plan: Sequence[Repo], keys: Mapping[str, Sequence[Mapping[str, Any]]], now_s: float) -> list[str]:
    """Why keys are refused, each a sentence. keys: by repository, as openpgp_keys gives them."""
    return [fault for repo in plan if (fault := key_fault(repo, keys[repo["name"]], now_s))]


def repos_before(changed: Iterable[str], contents: Mapping[str, str]) -> list[dict[str, Any]]:
    """Files for managed_files that bring changed paths back to what they were before the run.

    contents: of our own files, as read before. A foreign file's original comes back by its absence (the ledger).
    """
    ours = {path: contents.get(path, "") if PREFIX in path.rpartition("/")[2] else "" for path in changed}
    return [{"path": p, "content": c} if c else {"path": p, "state": "absent"} for p, c in ours.items()]


def repos_refusal(message: str, plan: Sequence[Repo]) -> str:
    """What apt or dnf said, as one sentence that names the repository and what to look at."""
    lines = [" ".join(line.split()) for line in str(message).splitlines()]
    told = [line for line in lines if re.match(r"[EW]: (?!Some index files)", line)] or [line for line in lines if line]
    said = " ".join(dict.fromkeys(told))
    named = [r for r in plan if r["url"].rstrip("/") in said or f"{PREFIX}{r['name']}" in said]
    if not named and re.search(r"lock", said):
        return (
            f"the package lists are in use by another run: {said}. What this run wrote was taken back; wait for the "
            f"other to end, and run again"
        )
    # The node's own: neither key nor address of it are this role's.
    what = (
        "repository " + ", ".join(f"'{r['name']}' ({r['url']})" for r in named) if named else "one of its repositories"
    )
    if not named:
        cause = "the node has an entry below /etc/apt/sources.list.d or /etc/yum.repos.d that is not from here"
    elif re.search(CLOCK, said):
        cause = "the clock of the node is wrong, or that of the mirror when it was made: set it (chrony, date -s)"
    elif re.search(r"(?i)ssl|tls|certificate|handshake|client key", said):
        cause = (
            "the TLS connection failed (repos_client_certificate, repos_client_key, repos_ca; apt reads these files as "
            "user _apt)"
        )
    elif re.search(r"NO_PUBKEY|not signed|KEYSIG|BADSIG|[Ss]ignature|sqv|GPG|OpenPGP", said):
        cause = "its index is not signed by the declared key (repos_fingerprints, repos_key_dir)"
    else:
        cause = "it cannot be reached or is no such repository (repos_mirror, repos_urls)"
        # dnf gives no reason.
        if any(repo["url"].startswith("https://") for repo in named):
            cause += ", or its server wants a certificate (repos_client_certificate, repos_ca)"
    return f"{what} cannot be read: {cause}. What this run wrote was taken back. The node said: {said}"


def repos_keys_there(plan: Sequence[Repo], contents: Mapping[str, str], system: str) -> dict[str, str]:
    """Text by repository of the keys on the node that are the declared ones already."""
    there = {repo["name"]: contents[key_path(repo["name"], system)] for repo in plan}
    return {
        repo["name"]: there[repo["name"]] for repo in plan if openpgp_holds(there[repo["name"]], repo["fingerprints"])
    }
