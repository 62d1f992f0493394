"""What a server accepts of TLS, by one handshake for each version and cipher suite that the local OpenSSL knows."""

from __future__ import annotations

import socket
import ssl
import warnings
from concurrent.futures import ThreadPoolExecutor

OLD = {"SSLv3": ssl.TLSVersion.SSLv3, "TLSv1": ssl.TLSVersion.TLSv1, "TLSv1.1": ssl.TLSVersion.TLSv1_1}
#: With forward secrecy and authenticated encryption, for a key on an elliptic curve.
STRONG = {"ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305"}


def _context(version: ssl.TLSVersion, suites: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers(f"{suites}:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = version
    return context


def _agreed(host: str, port: int, context: ssl.SSLContext) -> str | None:
    """The suite of a handshake, None where the server refuses."""
    with socket.create_connection((host, port), timeout=30) as plain:
        try:
            with context.wrap_socket(plain) as secured:
                found = secured.cipher()
                return found[0] if found else None
        except (ssl.SSLError, ConnectionResetError):
            return None


def old_versions(host: str, port: int) -> set[str]:
    """Versions before 1.2 that the server accepts."""
    every = "ALL:COMPLEMENTOFALL"
    return {name for name, version in OLD.items() if _agreed(host, port, _context(version, every))}


def suites(host: str, port: int) -> set[str]:
    """Suites of TLS 1.2 that the server accepts."""
    known = [one["name"] for one in _context(ssl.TLSVersion.TLSv1_2, "ALL:COMPLEMENTOFALL").get_ciphers()]
    names = [name for name in known if not name.startswith("TLS_")]  # those of TLS 1.3 are OpenSSL's own
    assert len(names) > 100, "too few to find a weak one"
    with ThreadPoolExecutor(4) as workers:
        done = workers.map(lambda name: _agreed(host, port, _context(ssl.TLSVersion.TLSv1_2, name)), names)
        return {name for name in done if name}
