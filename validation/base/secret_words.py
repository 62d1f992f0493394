"""What secrets look like in text: private keys, vault values, passwords in URLs, assignments and command lines, tokens.

A net, not a wall: it knows the usual forms. Standard library only, for Python 3.9: machines of the pool import it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_NAME = rb"(?:password|passwd|passphrase|pwd|secret|api[_-]?key|access[_-]?key|private[_-]?key|token|credentials?)"
_RULES: tuple[tuple[str, re.Pattern[bytes]], ...] = tuple(
    (words, re.compile(pattern, re.IGNORECASE))
    for words, pattern in (
        ("a private key", rb"-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----"),
        ("a vault value", rb"\$ANSIBLE_VAULT;|\"__ansible_vault\""),
        ("a password in a URL", rb"[a-z][a-z0-9+.-]{1,20}://[^\s/:@\"'<>]{0,64}:[^\s/@\"'<>]{1,200}@[a-z0-9\[]"),
        ("an Authorization header", rb"authorization[\"']?\s*[:=]\s*[\"']?(?:bearer|basic|token) +\S{8}"),
        (
            "a password on a command line",
            rb"\bsshpass +-p *\S|--?(?:password|passwd|token|secret)[ =]+[^\s\"'<>{\[(-]{4,}",
        ),
        ("a token", rb"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bgh[pousr]_[a-z0-9]{30,}|\bgithub_pat_[a-z0-9_]{22,}"),
        ("a token", rb"\bglpat-[a-z0-9_-]{20,}|\bxox[abprs]-[a-z0-9-]{10,}|\bhf_[a-z0-9]{30,}|\bnvapi-[a-z0-9_-]{20,}"),
        ("a token", rb"\beyJ[a-z0-9_-]{10,}\.eyJ[a-z0-9_-]{10,}\.[a-z0-9_-]{10,}"),
        ("a password hash", rb"\$(?:6|5|y|2[aby])\$[a-z0-9./$=]{20,}"),
    )
)
# Name, quote, sign, value. A word of letters alone after a colon counts only at the end of a line: prose goes on.
_ASSIGNED = re.compile(
    _NAME + rb"(_?[a-z0-9]{1,12})?[\"']?\s{0,4}(?:=|:(?!\s{1,4}[a-z]{1,100}[ ,;.][^\n]{0,400}[a-z]))\s{0,4}"
    rb"(?:\"([^\"]{4,400})|'([^']{4,400})|([^\s\"',;<>&]{4,400}))",
    re.IGNORECASE,
)
_PLACE = re.compile(rb"_?(?:file|path|dir|url)s?", re.IGNORECASE)  # where a secret is, not what it is
_HARMLESS = re.compile(
    rb"(?:none|null|true|false|undefined|unset|hidden|redacted|required|refused|missing|absent|present|changed|wrong|invalid)\b.{0,40}"
    rb"|[*x.]+|\{\{.*|\$[A-Z_({].*|[/~].*|[\d.,:]+",
    re.IGNORECASE | re.DOTALL,
)
HIDDEN = "..."
"""What stands in the place of a secret."""
_GIVES = re.compile(rf"--?[\w-]*{_NAME.decode()}[\w-]*", re.IGNORECASE)
_SETS = ("-e", "--env", "--extra-vars")
"""Options whose value is a setting, NAME=VALUE or JSON: of Ansible, of containers."""
_SET = re.compile(r"([\w.-]+=).+", re.DOTALL)
_KEY = re.compile(r"(-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----).*?(?=-----END|\Z)", re.DOTALL)
_URL = re.compile(r"([a-z][a-z0-9+.-]{1,20}://[^\s/:@\"'<>]{0,64}:)[^\s/@\"'<>]{1,200}(?=@)", re.IGNORECASE)
_GIVEN = re.compile(rf"((?<![\w-])--?[\w-]*{_NAME.decode()}[\w-]*[\"']?,?[ =]+)([\"']?)([^\s\"']+)", re.IGNORECASE)


def looks_like(line: bytes) -> str | None:
    """What a line looks like, if it looks like a secret."""
    for words, pattern in _RULES:
        if pattern.search(line):
            return words
    for match in _ASSIGNED.finditer(line):
        value = next(group for group in match.groups()[1:] if group is not None)
        if not _HARMLESS.fullmatch(value) and not (match.group(1) and _PLACE.fullmatch(match.group(1))):
            return "a password or token"
    return None


def secret_name(name: str) -> bool:
    """True where a variable's name says that its value is secret."""
    return re.search(_NAME.decode(), name, re.IGNORECASE) is not None


def secret_text(text: str) -> bool:
    """True where a text looks as if it held a secret."""
    return any(looks_like(line.encode()) for line in text.splitlines())


def hidden_words(words: Iterable[str]) -> list[str]:
    """A command line, word by word, with "..." for each value that is, or may be, a secret."""
    found, before = [], ""
    for word in words:
        option, sign, value = word.partition("=")
        if before in _SETS or (option in _SETS and sign):
            start = f"{option}=" if option in _SETS and sign else ""
            found.append(start + _setting(value if start else word))
        elif word.startswith("-e") and not word.startswith("--") and sign:
            found.append("-e" + _setting(word[2:]))
        elif (_secret_option(before) and not word.startswith("-")) or (before == "-p" and "sshpass" in found[0]):
            found.append(word if word[:1] in ("/", "~", "@") else HIDDEN)
        elif sign and _secret_option(option):
            found.append(f"{option}={value if value[:1] in ('/', '~', '@') else HIDDEN}")
        elif found and "sshpass" in found[0] and word.startswith("-p") and len(word) > 2:
            found.append(f"-p{HIDDEN}")
        else:
            found.append(hidden_text(word))
        before = word
    return found


def hidden_text(text: str) -> str:
    """Text of any lines, with "..." for what looks like a secret in it, or for the line where no more is known."""
    text = _URL.sub(rf"\g<1>{HIDDEN}", _KEY.sub(rf"\g<1>{HIDDEN}", text))
    text = _GIVEN.sub(lambda m: m[0] if m[3][:1] in "/~@-{$" else f"{m[1]}{m[2]}{HIDDEN}", text)
    lines = []
    for line in text.split("\n"):
        shown = _ASSIGNED.sub(_unassigned, line.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")
        lines.append(HIDDEN if looks_like(shown.encode("utf-8", "surrogateescape")) else shown)
    return "\n".join(lines)


def _setting(text: str) -> str:
    if text.startswith("@"):
        return text
    return _SET.sub(rf"\g<1>{HIDDEN}", text) if _SET.fullmatch(text) else HIDDEN


def _secret_option(word: str) -> bool:
    return _GIVES.fullmatch(word) is not None and not re.search(r"(?:file|path|dir|url)s?$", word)


def _unassigned(match: re.Match[bytes]) -> bytes:
    value = next(group for group in match.groups()[1:] if group is not None)
    if _HARMLESS.fullmatch(value) or (match[1] and _PLACE.fullmatch(match[1])):
        return match[0]
    return match[0][: -len(value)] + HIDDEN.encode()
