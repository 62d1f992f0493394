"""What preflight refuses of packages from outside: keys, repositories, archives of remoting engines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.compatibility import branch_of, known, numbers

Json = Mapping[str, Any]

#: Hashes that apt's sqv has refused in a key's own signatures since February 2026.
WEAK_HASHES = frozenset({"md5", "sha1", "ripemd160"})


def key_reasons(observed: Json, wanted: Json) -> Iterator[str]:
    """Repository keys that the node's apt will refuse."""
    if not observed["sqv"]:
        return
    for name, keys in sorted(wanted["repository_keys"].items()):
        weak = [k for k in keys if not {str(h).lower() for h in k["self_signature_hashes"]} - WEAK_HASHES]
        if keys and len(weak) == len(keys):
            yield (
                f"the key {keys[0]['fingerprint']} of repository {name} has only SHA-1 self-signatures, which apt of "
                f"this node (sqv) refuses: use the maker's repository and key for this system, or a mirror that is "
                f"signed by another key"
            )


def repository_reasons(observed: Json, wanted: Json) -> Iterator[str]:
    """Repositories that role repos will refuse, because nobody has said whose key signs them."""
    for name in wanted["undeclared_keys"]:
        yield (
            f"no fingerprint is known for the key of repository '{name}' on this system: compare that of its key file "
            f"with what its vendor publishes and set repos_fingerprints: {{{name}: ...}}"
            + (", or set ofed_provider to inbox" if name == "doca" else "")
        )


def engine_reasons(observed: Json, wanted: Json) -> Iterator[str]:
    """What the archive of the remoting engine needs of the node, where it says it: told before anything is installed.

    A server's driver is the one that the site installs; of a driver that the inventory does not name nothing is known.
    """
    for key in ("engine", "engine_torch", "engine_tensorflow"):
        yield from _engine_reasons(observed, wanted, wanted.get(key) or {}, f"remoting_{key}_artifact")


def _engine_reasons(observed: Json, wanted: Json, engine: Json, variable: str) -> Iterator[str]:
    name = f"the remoting engine {engine.get('engine')} {engine.get('release')} ({variable})"
    if engine.get("machine") not in (None, observed["architecture"]):
        yield f"{name} is for {engine['machine']}, and the node is {observed['architecture']}"
        return
    parts = [engine.get(part) or {} for part in (("server", "client") if wanted["gpu_server"] else ("client",))]
    needed = max((str(part.get("glibc") or engine.get("glibc") or "") for part in parts), key=numbers, default="")
    has = str(observed.get("glibc") or "")
    if needed and has and numbers(has) < numbers(needed):
        yield (f"{name} needs glibc {needed}, and the node has {has}: take a release that is built for an older system")
    driver = str((wanted["stack"].get("nvidia_driver") or {}).get("version") or "")
    least = known()["cuda_driver"].get(str(engine.get("cuda") or ""))
    if wanted["gpu_server"] and driver and least and branch_of(driver) < int(least):
        yield (
            f"{name} has a server that is built for CUDA {engine['cuda']}, for which the driver has to be of branch "
            f"{least} or newer, and the node gets {driver}: take the engine's release for an older CUDA"
        )
