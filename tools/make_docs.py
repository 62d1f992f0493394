#!/usr/bin/env python3
"""Write the parts of the docs that are made from data: exit codes, engines, a bound, what to do when a criterion fails;
the schemas of answers, documents and the report; and the register of the hashes of this release's rules, by which
runs of it are known later.

    tools/make_docs.py              write them
    tools/make_docs.py --check      write nothing; name the pages that are stale, exit status 1 when there are any

Only what is between the two marks of a page is written; text above and below them is left alone.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from toolkit import answer_forms, exits  # noqa: E402 - after the path
from toolkit.lease import engines  # noqa: E402
from tools.docsite import measured  # noqa: E402
from validation.model import LabLink  # noqa: E402
from validation.report.json_entries import json_schema  # noqa: E402
from validation.rules.bounds import bounds_of  # noqa: E402
from validation.rules.fabric import load_fabric  # noqa: E402
from validation.run.catalogue import load_criteria  # noqa: E402
from validation.run.rules_hashes import REGISTER, register_text  # noqa: E402

BEGIN = "<!-- Generated from {source} by tools/make_docs.py: change it there. -->\n"
END = "<!-- End of the generated part. -->\n"
HEAD = ("| Criterion | What must hold | What to do |", "|---|---|---|")


def remedies() -> str:
    """A table for each suite: what must hold, and where to look when it does not."""
    parts: dict[str, list[str]] = {}
    for c in load_criteria():
        rows = parts.setdefault(c.suite, [f"## {c.suite.capitalize()}", "", *HEAD])
        does = f"{c.remedy}. *Not measured by this release*" if c.no_probe else c.remedy
        rows.append(f"| `{c.id}` | {c.statement} | {does} |".replace("&", "&amp;"))
    return "\n\n".join("\n".join(rows) for rows in parts.values()) + "\n"


def tcp_bounds() -> str:
    """How the bound of TCP bandwidth comes about, on hardware and on a lab's link."""
    fabric = load_fabric("tcp10")
    both = [bounds_of(fabric, link)["tcp_bandwidth"] for link in (None, LabLink(rate_gbps=1.0, rtt_max_us=1000))]
    head = (f"| `{fabric.name}` on hardware | rehearsal on a lab link of 1 Gbit/s |", "|---|---|")
    return (
        "\n".join([*head, *(f"| {one} | {other} |" for one, other in zip(*(b.derivation for b in both), strict=True))])
        + "\n"
    )


def engine_table() -> str:
    """What each remoting engine is for."""
    rows = [f"| `{n}` | {e.MEANT_FOR} | {e.HOLDS_PARTS} |" for n, e in ((n, engines.load(n)) for n in engines.NAMES)]
    return "\n".join(["| engine | for | how a part of a GPU is held |", "|---|---|---|", *rows]) + "\n"


def _json(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2) + "\n"


#: page -> (source, how its generated part is made)
PAGES: dict[str, tuple[str, Callable[[], str]]] = {
    "docs/how-to/acceptance.md": ("toolkit/exits.py", exits.verdict_table),
    "docs/reference/exit-codes.md": ("toolkit/exits.py", exits.markdown_tables),
    "docs/reference/answers.md": ("toolkit/answer_forms/", answer_forms.table),
    "docs/explanation/verdicts.md": ("validation/rules/fabrics/", tcp_bounds),
    "docs/how-to/pool.md": ("toolkit/lease/engines/", engine_table),
    "docs/how-to/troubleshooting.md": ("validation/measures/*/*.yml", remedies),
    "docs/reference/measured.md": ("validation/measures/", measured.sections),
}


#: file that is made as a whole -> how
WHOLE: dict[str, Callable[[], str]] = {
    f"validation/rules/{REGISTER}": register_text,
    **{f"docs/schema/{name}": partial(_json, schema) for name, schema in answer_forms.files().items()},
    "docs/schema/report-2.json": lambda: _json(json_schema()),
}


def page(name: str) -> str:
    """The whole page, its generated part made anew. ValueError when it has no marks."""
    if name in WHOLE:
        return WHOLE[name]()
    source, make = PAGES[name]
    begin = BEGIN.format(source=source)
    before, mark, rest = (ROOT / name).read_text(encoding="utf-8").partition(begin)
    _, last, after = rest.partition(END)
    if not (mark and last):
        raise ValueError(f"{name}: the marks of the generated part are missing")
    return f"{before}{begin}\n{make()}\n{END}{after}"


def _standing(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def main() -> int:
    """Write the pages, or name those that are stale."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 when a page is stale")
    check = parser.parse_args().check
    stale = [name for name in (*PAGES, *WHOLE) if page(name) != _standing(ROOT / name)]
    for name in stale:
        if not check:
            (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / name).write_text(page(name), encoding="utf-8")
        print(f"{name}: " + ("stale; run tools/make_docs.py" if check else "written"))
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
