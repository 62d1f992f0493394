"""Reading OpenPGP public keys (RFC 4880 and 9580) on the controller, before anything of them reaches a node."""

from __future__ import annotations

import base64
import binascii
import datetime
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible.errors import AnsibleFilterError

BEGIN = "-----BEGIN PGP PUBLIC KEY BLOCK-----"
END = "-----END PGP PUBLIC KEY BLOCK-----"
#: Packet types, RFC 9580 section 5.
SIGNATURE, PRIMARY, SUBKEY = 2, 6, 14
#: Signature types by which a key speaks for itself: on a user ID (0x10 to 0x13) and on the key alone (0x1f).
SELF_TYPES = (0x10, 0x11, 0x12, 0x13, 0x1F)
#: Hash algorithms, RFC 9580 section 9.5.
HASHES = {1: "md5", 2: "sha1", 3: "ripemd160", 8: "sha256", 9: "sha384", 10: "sha512", 11: "sha224"}
HASHES |= {12: "sha3-256", 14: "sha3-512"}
#: Signature subpackets, RFC 9580 section 5.2.3.7.
CREATED, KEY_LIFETIME, ISSUER, ISSUER_FINGERPRINT = 2, 9, 16, 33
CRC24_INIT, CRC24_POLYNOMIAL = 0xB704CE, 0x1864CFB
COLUMNS = 64


@dataclass
class Key:
    """One primary key with all packets that belong to it."""

    fingerprint: str
    created_s: int
    raw: bytearray
    #: Of each self-signature: when it was made, its hash, the key's lifetime (0 is for ever).
    signatures: list[tuple[int, str, int]] = field(default_factory=list)


def crc24(data: bytes) -> int:
    """The armour's checksum, RFC 9580 section 6.1."""
    crc = CRC24_INIT
    for byte in data:
        crc ^= byte << 16
        for _ in range(8):
            crc = crc << 1 ^ (CRC24_POLYNOMIAL if crc & 0x800000 else 0)
    return crc & 0xFFFFFF


def dearmour(text: str | bytes) -> bytes:
    """The packets of armoured text, of several blocks one after the other; binary input as it is."""
    # A lookup hands binary data over as text with surrogates in place of what is not UTF-8.
    data = text if isinstance(text, bytes) else str(text).encode("utf-8", "surrogateescape")
    if data[:1] and data[0] & 0x80 and BEGIN.encode() not in data:
        return data
    packets = b""
    blocks = re.findall(f"{BEGIN}(.*?){END}", data.decode("utf-8", "replace"), re.DOTALL)
    if not blocks:
        raise AnsibleFilterError("this is no OpenPGP public key: neither armoured text nor binary packets")
    for block in blocks:
        _, _, body = block.replace("\r", "").partition("\n\n") if "\n\n" in block.replace("\r", "") else ("", "", block)
        lines = [line.strip() for line in body.splitlines() if line.strip()]
        sums = [line[1:] for line in lines if line.startswith("=") and len(line) == 5]
        try:
            part = base64.b64decode("".join(x for x in lines if not (x.startswith("=") and len(x) == 5)), validate=True)
        except binascii.Error as e:
            raise AnsibleFilterError(f"the OpenPGP key is damaged: {e}") from None
        if sums and int.from_bytes(base64.b64decode(sums[-1]), "big") != crc24(part):
            raise AnsibleFilterError("the OpenPGP key is damaged: its checksum is wrong")
        packets += part
    return packets


def armour(packets: bytes) -> str:
    """Armoured text of public key packets."""
    body = base64.b64encode(packets).decode()
    lines = [body[i : i + COLUMNS] for i in range(0, len(body), COLUMNS)]
    check = base64.b64encode(crc24(packets).to_bytes(3, "big")).decode()
    return "\n".join([BEGIN, "", *lines, f"={check}", END, ""])


def packets_of(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Type, body and whole bytes of each packet."""
    at = 0
    while at < len(data):
        start, head = at, data[at]
        if not head & 0x80:
            raise AnsibleFilterError("the OpenPGP key is damaged: a packet was expected")
        at += 1
        if head & 0x40:
            kind, first = head & 0x3F, data[at]
            if first < 192:
                length, at = first, at + 1
            elif first < 224:
                length, at = (first - 192 << 8) + data[at + 1] + 192, at + 2
            elif first == 255:
                length, at = int.from_bytes(data[at + 1 : at + 5], "big"), at + 5
            else:
                raise AnsibleFilterError("the OpenPGP key has a packet of partial length, which keys may not have")
        else:
            kind, size = head >> 2 & 0xF, head & 3
            if size == 3:
                length = len(data) - at
            else:
                octets = 1 << size
                length, at = int.from_bytes(data[at : at + octets], "big"), at + octets
        if at + length > len(data):
            raise AnsibleFilterError("the OpenPGP key is cut off")
        yield kind, data[at : at + length], data[start : at + length]
        at += length


def fingerprint(body: bytes) -> str:
    """Fingerprint of a key packet, RFC 9580 section 5.5.4."""
    if body[0] == 4:
        head = b"\x99" + len(body).to_bytes(2, "big")
        return hashlib.sha1(head + body, usedforsecurity=False).hexdigest().upper()
    if body[0] == 6:
        return hashlib.sha256(b"\x9b" + len(body).to_bytes(4, "big") + body).hexdigest().upper()
    raise AnsibleFilterError(f"the OpenPGP key is of version {body[0]}, which is not trusted any more")


def subpackets_of(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and body of each signature subpacket."""
    at = 0
    while at < len(data):
        first = data[at]
        if first < 192:
            length, at = first, at + 1
        elif first < 255:
            length, at = (first - 192 << 8) + data[at + 1] + 192, at + 2
        else:
            length, at = int.from_bytes(data[at + 1 : at + 5], "big"), at + 5
        yield data[at] & 0x7F, data[at + 1 : at + length]
        at += length


def self_signature(body: bytes, key: Key) -> tuple[int, str, int] | None:
    """Time, hash and key lifetime of a signature that the key made about itself; None of any other."""
    if body[0] == 3:
        own = body[2] in SELF_TYPES and body[7:15].hex().upper() == key.fingerprint[-16:]
        return (int.from_bytes(body[3:7], "big"), HASHES.get(body[16], f"hash {body[16]}"), 0) if own else None
    if body[0] not in (4, 6) or body[1] not in SELF_TYPES:
        return None
    width = 2 if body[0] == 4 else 4
    hashed_end = 4 + width + int.from_bytes(body[4 : 4 + width], "big")
    unhashed_end = hashed_end + width + int.from_bytes(body[hashed_end : hashed_end + width], "big")
    hashed = dict(subpackets_of(body[4 + width : hashed_end]))
    both = {**dict(subpackets_of(body[hashed_end + width : unhashed_end])), **hashed}
    issuer = both.get(ISSUER_FINGERPRINT, b"\0")[1:].hex().upper() or both.get(ISSUER, b"").hex().upper()
    if not issuer or not key.fingerprint.endswith(issuer):
        # A version 6 key is known by the first half of its fingerprint, and always names its issuer in full.
        return None
    made = int.from_bytes(hashed.get(CREATED, b""), "big")
    return made, HASHES.get(body[3], f"hash {body[3]}"), int.from_bytes(hashed.get(KEY_LIFETIME, b""), "big")


def read_keys(text: str | bytes) -> list[Key]:
    """The primary keys of a key file."""
    keys: list[Key] = []
    try:
        for kind, body, whole in packets_of(dearmour(text)):
            if kind == PRIMARY:
                keys.append(Key(fingerprint(body), int.from_bytes(body[1:5], "big"), bytearray()))
            if not keys:
                raise AnsibleFilterError("this is no OpenPGP public key: it does not begin with one")
            keys[-1].raw += whole
            if kind == SIGNATURE and (made := self_signature(body, keys[-1])):
                keys[-1].signatures.append(made)
    except IndexError:
        raise AnsibleFilterError("the OpenPGP key is cut off") from None
    if not keys:
        raise AnsibleFilterError("this is no OpenPGP public key: it is empty")
    return keys


def timestamp(seconds: int) -> str:
    """A time as ISO 8601, UTC."""
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def openpgp_keys(text: str | bytes) -> list[dict[str, Any]]:
    """What a public key file holds: of each primary key its fingerprint, times and self-signatures.

    text: armoured or binary. expires: '' for never, by the newest self-signature. self_signature_hashes: names of the
    hash algorithms, each once; signatures are read here and not verified.
    """
    found = []
    for key in read_keys(text):
        lifetime_s = max(key.signatures, default=(0, "", 0))[2]
        found.append(
            {
                "fingerprint": key.fingerprint,
                "created": timestamp(key.created_s),
                "expires": timestamp(key.created_s + lifetime_s) if lifetime_s else "",
                "self_signature_hashes": sorted({name for _, name, _ in key.signatures}),
            }
        )
    return found


def normal(fingerprint_text: str) -> str:
    """A fingerprint as people write it, without blanks and in capitals."""
    return re.sub(r"[\s:]|^0[xX]", "", str(fingerprint_text)).upper()


def openpgp_only(text: str | bytes, declared: str | Sequence[str]) -> str:
    """The armoured keys of a file whose fingerprints are declared, and no other that it may hold.

    '' where the file has none of them: nothing of it is to be trusted.
    """
    wanted = {normal(f) for f in ([declared] if isinstance(declared, str) else declared)}
    chosen = [bytes(key.raw) for key in read_keys(text) if key.fingerprint in wanted]
    return armour(b"".join(chosen)) if chosen else ""


def openpgp_holds(text: str | bytes, declared: str | Sequence[str]) -> bool:
    """Whether a file holds a declared key; false of a damaged file, too."""
    try:
        return bool(openpgp_only(text, declared))
    except AnsibleFilterError:
        return False


def openpgp_trusted(texts: Mapping[str, str], declared: Mapping[str, str | Sequence[str]]) -> dict[str, str]:
    """openpgp_only for several files by name."""
    return {name: openpgp_only(text, declared[name]) for name, text in texts.items() if name in declared}


def openpgp_armour(text: str | bytes) -> str:
    """All keys of a file, armoured; for binary files that have to pass through templates."""
    return armour(b"".join(bytes(key.raw) for key in read_keys(text)))
