"""Takes secrets out of what goes into a support package: known ones by their text, others by their form.

A net, not a wall, like validation/base/secret_words.py, on which it is built. It hides more than that does, because
these files leave the site: values of any length beside a name of a secret, whole keys, vaults and cookies.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import quote

from validation.base.secret_words import HIDDEN, hidden_text, looks_like

LONGEST_LINE = 32 << 10
"""Bytes of a line that may hold a secret and is looked at; a longer one is hidden whole."""
ONE_LOOK_S, ALL_LOOKS_S = 120.0, 1800.0
"""How long one text, and all of a package, may take. A log of 16 MiB takes about a second; a node that means harm can
write lines that take much longer. Project defaults."""
LEAST_LITERAL = 6
"""Characters of a known secret that is looked for by its text; a shorter one would be found in every log."""
_MARK = HIDDEN.encode()
_BESIDE = rb"(?:_\d{1,3})?[\"']?\s{0,8}[=:]"
_HINTS = tuple(
    re.compile(pattern)
    for pattern in (
        rb"pass(?:w|phrase|" + _BESIDE + rb")", rb"sshpass", rb"key" + _BESIDE, rb"pwd" + _BESIDE, rb"psk" + _BESIDE,
        rb"token" + _BESIDE, rb"-token", rb"token[ >_]", rb"secret", rb"credential", rb"auth(?:orization|-token)",
        rb"cookie", rb"://[^\s/@]{0,64}:[^\s/]{1,200}@", rb"bindpw", rb"rootpw", rb"community", rb"ipmitool", rb"curl ",
        rb"wget ", rb"mysql", rb"akia", rb"asia[0-9a-z]{16}", rb"gh[pousr]_", rb"github_pat_", rb"glpat-",
        rb"xox[abprs]-", rb"eyj", rb"hf_", rb"nvapi-", rb"\$(?:6|5|1|y|apr1|2[aby])\$",
        rb"ls0tls1crudjt", rb"grub\.pbkdf2", rb"identified", rb"\"auth\"", rb"racadm", rb"docker login",
        rb"redis-cli ", rb"ldap\w{0,20} ", rb"mosquitto_", rb"smb\w{0,20} ", rb"snmp\w{0,20} ",
    )
)  # fmt: skip
"""A line is looked at closely only where one of these is in it, in lower case: reports have hundreds of megabytes."""
_KEY_END = re.compile(rb"-----END [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----")
_KEY = re.compile(
    rb"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----.*?(?:" + _KEY_END.pattern + rb"|\Z)", re.DOTALL
)
_KEY_LINE = re.compile(rb"(?:^|[ \t:|>])[A-Za-z0-9+/]{16,}={0,2}[ \t\r]*$")
_MOST_KEY_LINES = 200
_MOST_ENDS = 100
_VAULT = re.compile(rb"\$ANSIBLE_VAULT;[^\n\"']*(?:\n[ \t]*[0-9a-f]{2,}[ \t\r]*(?=\n|\Z))*")
_NAME = (
    r"(?:password|passwd|passphrase|passwort|pwd|secret|psk|(?:storage|db|user|ldap|bind|smtp|root|sql|priv|auth)_?pass"
    r"|[a-z0-9]_pass(?![a-z])|(?<![\w-])pass(?=[\"'=])|(?:pre)?[_-]?shared[_-]?(?:access[_-]?)?key|account[_-]?key"
    r"|api[_-]?key|access[_-]?key|private[_-]?key|auth[_-]?key|secret[_-]?key|munge[_-]?key|token|credentials?)"
)
_BLOCK = re.compile(
    rb"^(?P<name>(?P<indent>[ \t]*(?:- +)?)[\"']?[\w.-]{0,60}?" + _NAME.encode() + rb"(?:_\d{1,3})?[\"']?[ \t]*:)"
    rb"[ \t]*[|>][0-9+-]{0,2}[ \t]*(?:#[^\n]*)?\n",
    re.IGNORECASE | re.MULTILINE,
)
_HEADER = re.compile(
    r"\b((?:proxy-)?authorization|x-auth-token|x-api-key|(?:set-)?cookie(?=\W{1,6}[\w.-]+=))([\"']?\s*[:=]\s*)"
    r"(?:(\")[^\"]*\"|(')[^']*'|\S.*)",
    re.IGNORECASE,
)
_GIVEN = re.compile(
    rf"{_NAME}(?:_\d{{1,3}})?[\"']?\s{{0,8}}[=:]\s{{0,8}}(?P<value>\"(?:[^\"\\]|\\.)*\"?|'[^']*'?|[^\s\"',;&<>]+)",
    re.IGNORECASE,
)
_SETTING = re.compile(r"[^\w\n]{0,80}(?:(?:export|set)\s+)?[\w.-]{0,60}")
"""What is before the name where a line is a setting: then its value goes on to the end of the line."""
_FORMS = tuple(
    (re.compile(pattern, re.IGNORECASE), where)
    for pattern, where in (
        (r"://[^\s/:@\"'<>]{0,64}:[^\s/\"'<>]{1,200}@(?=[a-z0-9\[])", r"://...@"),
        (r"(<([\w:.-]{0,40}(?:password|passwd|secret|token)[\w.-]{0,20})[^<>]*>)[^<]{1,400}(?=</)", r"\g<1>..."),
        (r"(\blogin\s+\S+\s+password\s+)\S+", r"\g<1>..."),
        (r"(\b(?:bindpw|rootpw)\s+)\S+", r"\g<1>..."),
        (r"(\bipmitool\b.{0,300}?\s-[PKk]\s*)\S+", r"\g<1>..."),
        (r"(\b(?:curl|wget)\b.{0,300}?\s(?:-u|--user|--proxy-user|-U)[ =]?)[^\s:]+:\S+", r"\g<1>..."),
        (r"(\bmysql\w{0,20}\b.{0,300}?\s-p)[^\s-]\S*", r"\g<1>..."),
        (r"(\b(?:racadm|docker\s+login)\b.{0,300}?\s-p\s+)\S+", r"\g<1>..."),
        (r"(\bredis-cli\b.{0,300}?\s(?:-a|--pass)\s+)\S+", r"\g<1>..."),
        (r"(\bldap\w{0,20}\b.{0,300}?\s-w\s*)\S+", r"\g<1>..."),
        (r"(\bmosquitto_\w{0,20}\b.{0,300}?\s-P\s+)\S+", r"\g<1>..."),
        (r"(\bsmb\w{0,20}\b.{0,300}?\s-U\s*[^\s%]{1,64}%)\S+", r"\g<1>..."),
        (r"(\bsnmp\w{0,20}\b.{0,300}?\s-[cAX]\s*)\S+", r"\g<1>..."),
        (r"(\bidentified\s+by\s+)(?:'[^']*'?|\"[^\"]*\"?|\S+)", r"\g<1>..."),
        (r"(\"auth\"\s*:\s*\")[a-z0-9+/=_-]{6,}", r"\g<1>..."),  # of a container registry: user and password
        (r"(\$(?:1|apr1)\$)[a-z0-9./]{1,8}\$[a-z0-9./]{22}", r"\g<1>..."),
        (r"(\bgrub\.pbkdf2\.\w{1,20}\.)[0-9a-f.]+", r"\g<1>..."),
        (r"LS0tLS1CRUdJT[a-z0-9+/=]+", "..."),  # base64 of -----BEGIN: kubeconfig has keys so
        (r"(\br[ow]community6?\s+)\S+", r"\g<1>..."),
        (r"(\bcommunity\s+)(?!string\b|name\b)\S+", r"\g<1>..."),
    )
)
_HARMLESS = re.compile(
    r"[\"']?(?:none|null|true|false|yes|no|on|off|undefined|unset|hidden|redacted|required|enabled|disabled|n/a|\.\.\.|"
    r"\*+|x+|\[hidden\])?[\"']?[,;}\])]*",
    re.IGNORECASE,
)
_COUNT = re.compile(r"(?:.*token.*[=:]\s*\d{1,6}|[a-z0-9]?_?pass\W+\d{1,4})\Z", re.IGNORECASE)
"""What is behind `token` in a kernel's log, and behind `tests_pass`: a small number."""


class Unlooked(Exception):
    """A text could not be looked through in its time, and must not be packed."""


@dataclass
class Cleaned:
    """What is left of a file. `hidden`: what was taken out, by its kind -> how often."""

    data: bytes
    hidden: Counter[str] = field(default_factory=Counter)


class Literals:
    """Secrets that are known by their text: the site's own."""

    def __init__(self, secrets: Iterable[str]) -> None:
        """Those of LEAST_LITERAL characters or more, in the forms in which they may be written."""
        forms: set[bytes] = set()
        for one in secrets:
            if len(one) >= LEAST_LITERAL:
                raw = one.encode("utf-8", "surrogateescape")
                forms |= {raw, quote(raw, safe="").encode()}
                forms.add(json.dumps(one)[1:-1].encode())
        self._forms = sorted(forms, key=len, reverse=True)
        self.left_s = ALL_LOOKS_S

    def taken_out(self, data: bytes, hidden: Counter[str]) -> bytes:
        """`data` without them."""
        for form in self._forms:
            if count := data.count(form):
                hidden["a secret of this site"] += count
                data = data.replace(form, _MARK)
        return data

    def __repr__(self) -> str:
        """How many there are."""
        return f"Literals({len(self._forms)})"


def clean(data: bytes, literals: Literals) -> Cleaned:
    """Text without secrets, with control characters made visible. NUL bytes are dropped first: text of 16-bit
    characters is looked through as well. Unlooked where that takes too long.
    """
    began = time.monotonic()
    try:
        return _cleaned(data, literals, began + min(ONE_LOOK_S, literals.left_s))
    finally:
        literals.left_s -= time.monotonic() - began


def _cleaned(data: bytes, literals: Literals, until: float) -> Cleaned:
    cleaned = Cleaned(_plain(data))
    cleaned.data = literals.taken_out(cleaned.data, cleaned.hidden)
    low = cleaned.data.lower()
    if b"private key" in low:
        cleaned.data = _without_keys(cleaned.data, cleaned.hidden)
    if b"$ansible_vault" in low:
        cleaned.data, count = _VAULT.subn(_MARK, cleaned.data)
        cleaned.hidden["a vault value"] += count
    cleaned.data = _without_blocks(cleaned.data, cleaned.hidden)
    cleaned.data = _without_words(cleaned.data, cleaned.hidden, until)
    cleaned.hidden = +cleaned.hidden
    return cleaned


_CONTROL = bytes(one for one in range(32) if one not in b"\t\n\r") + b"\x7f"
_SHOWN = {bytes((one,)): f"\\x{one:02x}".encode() for one in _CONTROL if one}


def _plain(data: bytes) -> bytes:
    data = data.replace(b"\0", b"").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if data.translate(None, _CONTROL) != data:
        for one, shown in _SHOWN.items():
            data = data.replace(one, shown)
    return data


def _without_keys(data: bytes, hidden: Counter[str]) -> bytes:
    data, count = _KEY.subn(_MARK, data)
    hidden["a private key"] += count
    ends = 0
    while (end := _KEY_END.search(data)) is not None:  # of a log that was cut within a key
        hidden["a private key"] += 1
        ends += 1
        if ends > _MOST_ENDS:
            raise Unlooked
        before = data[: end.start()].rsplit(b"\n", _MOST_KEY_LINES)
        tail = before.pop()  # what is before the mark on its own line
        while len(before) > 1 and _KEY_LINE.search(before[-1]):
            before.pop()
        if len(before) == 1 and _KEY_LINE.search(before[0].rpartition(b"\n")[2]):
            before[0] = before[0].rpartition(b"\n")[0]
        data = b"\n".join([*before, tail]) + _MARK + data[end.end() :]
    return data


def _without_blocks(data: bytes, hidden: Counter[str]) -> bytes:
    """YAML's values over several lines, beside names of secrets: they end where their indentation ends."""
    parts, done = [], 0
    for found in _BLOCK.finditer(data):
        if found.start() < done:
            continue
        least, end, last = len(found["indent"].expandtabs()), found.end(), 0
        while end < len(data):
            stop = data.find(b"\n", end)
            stop = len(data) if stop < 0 else stop
            line = data[end:stop]
            if line.strip():
                if len(line.expandtabs()) - len(line.expandtabs().lstrip()) <= least:
                    break
                last = stop
            end = stop + 1
        if last:
            hidden["a password or token"] += 1
            parts += [data[done : found.end("name")], b" " + _MARK]
            done = last
    return b"".join([*parts, data[done:]])


def _without_words(data: bytes, hidden: Counter[str], until: float) -> bytes:
    """Each line that may hold a secret is looked at; the others stay as they are."""
    low, starts = data.lower(), set()
    for hint in _HINTS:
        found = hint.search(low)
        while found is not None:
            starts.add(low.rfind(b"\n", 0, found.start()) + 1)
            end = low.find(b"\n", found.start())
            found = hint.search(low, end) if end >= 0 else None
    parts, done = [], 0
    for start in sorted(starts):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        line = data[start:end]
        if time.monotonic() > until:
            raise Unlooked
        if len(line) > LONGEST_LINE:
            hidden["a line too long to be looked through"] += 1
            parts += [data[done:start], _MARK]
            done = end
            continue
        shown = hidden_line(line.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        if shown != line:
            hidden[looks_like(line) or "a password or token"] += 1
            parts += [data[done:start], shown]
            done = end
    return b"".join([*parts, data[done:]])


def hidden_line(line: str) -> str:
    """One line without what may be a secret in it."""
    line = _HEADER.sub(lambda m: f"{m[1]}{m[2]}{m[3] or m[4] or ''}{HIDDEN}{m[3] or m[4] or ''}", line)
    for pattern, instead in _FORMS:
        line = pattern.sub(instead, line)
    return hidden_text(_without_values(line))


def _without_values(line: str) -> str:
    """A line without the values beside names of secrets."""
    parts, done = [], 0
    for match in _GIVEN.finditer(line):
        start, end = match.span("value")
        if start < done:
            continue
        value = match["value"]
        if _HARMLESS.fullmatch(value) or _COUNT.match(match[0]):
            continue
        quote_ = value[0] if value[0] in "\"'" else ""
        if not quote_ and not done and _SETTING.fullmatch(line[: match.start()]):
            end = len(line)
        parts += [line[done:start], f"{quote_}{HIDDEN}{quote_}"]
        done = end
    return "".join([*parts, line[done:]])
