#!/usr/bin/env python3
"""Check the fragments in changelog.d/, print them as the next section of CHANGELOG.md, or write that section.

tools/changelog.py --check                     name each fragment that is wrong; exit status 1 when one is
tools/changelog.py --draft                     print the section that the next release gets
tools/changelog.py --release 0.2.0             write the section into CHANGELOG.md and remove the fragments
"""

from __future__ import annotations

import argparse
import datetime
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: The last part of a fragment's name -> the heading of its entries, in the order of the section.
KINDS = {
    "added": "Added",
    "changed": "Changed",
    "removed": "Removed",
    "fixed": "Fixed",
    "security": "Security",
}
MARK = "<!-- tools/changelog.py writes each release below this line. -->\n"
_NAME = re.compile(rf"[a-z0-9][a-z0-9-]*\.({'|'.join(KINDS)})\.md")
_VERSION = re.compile(r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)")
_RELEASED = re.compile(r"^## ([0-9]+)\.([0-9]+)\.([0-9]+) ", re.MULTILINE)
_HEADING = re.compile(r"^\s*(#|<!--|[=-]{3,}\s*$)", re.MULTILINE)
_ODD = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def fragments(root: Path = ROOT) -> list[Path]:
    """Every file in changelog.d/ but its README, in the order of the names."""
    return sorted(path for path in (root / "changelog.d").glob("*") if path.name != "README.md")


def faults(root: Path = ROOT) -> list[str]:
    """One sentence for each fragment that is wrong."""
    found = []
    for path in fragments(root):
        name = f"changelog.d/{path.name}"
        if not _NAME.fullmatch(path.name):
            found.append(f"{name}: the name must be TOPIC.KIND.md, KIND one of {', '.join(KINDS)}")
            continue
        if path.is_symlink() or not path.is_file():
            found.append(f"{name}: is no plain file")
            continue
        try:
            text = path.read_text(encoding="utf-8").strip()
        except UnicodeDecodeError:
            found.append(f"{name}: is not UTF-8 text; save it as UTF-8")
            continue
        if odd := _ODD.search(text):
            found.append(f"{name}: has the character U+{ord(odd[0]):04X}, which cannot be seen; take it out")
        elif not text:
            found.append(f"{name}: is empty; write one or two sentences for a user")
        elif text[0] in "#-*":
            found.append(f"{name}:1: starts with '{text[0]}'; write sentences, the release adds heading and bullet")
        elif _HEADING.search(text):
            found.append(f"{name}: has a heading or a comment; write sentences, the release adds the headings")
        elif not text.endswith((".", "`")):
            found.append(f"{name}: does not end with a full stop")
    return found


def entries(root: Path = ROOT) -> str:
    """The fragments as Markdown: a heading for each kind, a bullet for each fragment."""
    parts = []
    for kind, title in KINDS.items():
        texts = [p.read_text(encoding="utf-8").strip() for p in fragments(root) if p.name.endswith(f".{kind}.md")]
        if texts:
            parts.append(f"### {title}\n\n" + "".join("- " + text.replace("\n", "\n  ") + "\n" for text in texts))
    return "\n".join(parts)


def release(version: str, day: datetime.date, root: Path = ROOT) -> str:
    """Write the section of a release, remove the fragments, and answer the section. ValueError where that cannot be."""
    if not _VERSION.fullmatch(version):
        raise ValueError(f"'{version}' is no version; write three numbers, for example 0.2.0")
    if wrong := faults(root):
        raise ValueError("\n".join(wrong))
    page = root / "CHANGELOG.md"
    before, mark, after = page.read_text(encoding="utf-8").partition(MARK)
    if not mark:
        raise ValueError(f"{page.name}: the line '{MARK.strip()}' is missing")
    if f"\n## {version} " in after:
        raise ValueError(f"{page.name}: has a section of {version} already")
    numbers = tuple(int(part) for part in version.split("."))
    last = max((tuple(int(part) for part in parts) for parts in _RELEASED.findall(after)), default=None)
    if last is not None and numbers < last:
        raise ValueError(f"{version} is older than {'.'.join(map(str, last))}, the last release; give a newer version")
    body = entries(root)
    if not body:
        raise ValueError("changelog.d/: no fragment; nothing to release")
    section = f"\n## {version} ({day.isoformat()})\n\n{body}"
    page.write_text(f"{before}{mark}{section}{after}", encoding="utf-8")
    for path in fragments(root):
        path.unlink()
    return section


def today() -> datetime.date:
    """In UTC."""
    return datetime.datetime.now(datetime.timezone.utc).date()


def main() -> int:
    """Do one of the three."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    one = parser.add_mutually_exclusive_group(required=True)
    one.add_argument("--check", action="store_true", help="name each fragment that is wrong; exit status 1 when one is")
    one.add_argument("--draft", action="store_true", help="print the section of the next release")
    one.add_argument("--release", metavar="VERSION", help="write the section of a release and remove the fragments")
    parser.add_argument("--date", type=datetime.date.fromisoformat, default=today(), help="YYYY-MM-DD (default: today)")
    asked = parser.parse_args()
    try:
        if asked.release:
            print(release(asked.release, asked.date))
        elif wrong := faults():
            print("\n".join(wrong), file=sys.stderr)
            return 1
        elif asked.draft:
            print(entries())
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
