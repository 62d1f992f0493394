"""A comparison as text for a terminal, and as one HTML file in the style of the report."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from jinja2 import Environment
from markupsafe import Markup

from validation.compare.model import Comparison, Figure
from validation.report import numbers
from validation.report.criteria import FAMILIES
from validation.report.pages import environment
from validation.report.svg.colour import ALARM, GREEN, INK, MUTED, PAPER
from validation.report.svg.drawing import element, path, svg
from validation.rules.criterion import family_of

_TEXT_ROWS = 20
_TEXT_PARTS = 60
_NONE = numbers.NONE


def change_text(figure: Figure) -> str:
    """ "+4.1 % [3.2, 5.0]", or a dash where there is no old value to compare with."""
    if figure.change is None:
        return _NONE
    text = f"{figure.change * 100:+.1f} %"
    if figure.change_low is None or figure.change_high is None:
        return text
    return f"{text} [{figure.change_low * 100:+.1f}, {figure.change_high * 100:+.1f}]"


def noise_text(figure: Figure) -> str:
    """What the change means, in words."""
    if figure.old == figure.new:
        return "the same"
    if figure.change_low is None and figure.noise == "beyond":
        return "exact"
    if figure.between and figure.noise == "within":
        return f"within noise; runs of its equals differ by {figure.between * 100:.1f} %"
    return {
        "beyond": "beyond noise",
        "within": "within noise",
        "small": "small",
        "unknown": "too few samples to say",
    }[figure.noise]


def tested_text(comparison: Comparison) -> str:
    """How many figures were tested, and how often that raises a false alarm."""
    return (
        f"{numbers.plural(comparison.tested, 'figure')}, corrected for their number (Holm): a comparison in which "
        f"nothing changed calls any of them changed in {comparison.level * 100:g} % of all cases"
    )


def parts_text(comparison: Comparison) -> str:
    """What is said of serial numbers where there is no difference."""
    unread = comparison.parts_unread
    if unread:
        return f"not compared: no part was read in {' and in '.join(dict.fromkeys(unread))}"
    return "no difference in those that both runs read"


def notable(comparison: Comparison) -> tuple[Figure, ...]:
    """The figures that changed, the worst first."""
    order = {"worse": 0, "changed": 1, "better": 2}
    found = [f for f in comparison.figures if f.verdict != "same"]
    return tuple(sorted(found, key=lambda f: (order[f.verdict], -abs(f.change or 0))))


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    return [
        "  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[-1]]).rstrip() for row in rows
    ]


def as_text(comparison: Comparison) -> str:
    """Headline first, then what is different; what is the same is counted."""
    c = comparison
    lines = ["REHEARSAL on virtual parts: nothing here is an acceptance."] if c.rehearsal else []
    lines += ["CONSTRUCTED EXAMPLE: the data were made up; no machine was measured."] if c.constructed else []
    lines += [c.headline, ""]
    rows = [("", "before", "after")]
    rows += [("run", c.a.run, c.b.run), ("created", numbers.moment(c.a.created), numbers.moment(c.b.created))]
    rows += [("sign-off", f"{c.a.sign_off}, {c.a.outcome}", f"{c.b.sign_off}, {c.b.outcome}")]
    rows += [("measured", f"{c.a.measured}/{c.a.planned}", f"{c.b.measured}/{c.b.planned}")]
    lines += _table(rows)
    for title, differences in (("stack", c.stack), ("rules", c.rules)):
        if differences:
            lines += ["", f"{title}:"]
            lines += _table(
                [(f"  {d.what}", d.old or _NONE, "->", d.new or _NONE, _nodes(d.nodes)) for d in differences]
            )
    if c.nodes_gone or c.nodes_new:
        lines += ["", f"nodes gone: {', '.join(c.nodes_gone) or 'none'}; new: {', '.join(c.nodes_new) or 'none'}"]
    if not c.parts:
        lines += ["", f"parts by serial number: {parts_text(c)}"]
    else:
        lines += ["", "parts by serial number:", *(f"  {one.words}" for one in c.parts[:_TEXT_PARTS])]
        if len(c.parts) > _TEXT_PARTS:
            lines.append(f"  and {len(c.parts) - _TEXT_PARTS} more; --format html or json has all")
    changed = [x for x in c.criteria if x.verdict != "same"]
    if changed:
        lines += ["", "criteria:"]
        lines += _table([(f"  {x.id}", x.verdict, f"{x.old or _NONE} -> {x.new or _NONE}", x.why) for x in changed])
    for finding in c.findings:
        lines += ["", f"{finding.kind} {finding.subject}: {finding.text}", f"  what to do: {finding.remedy}"]
    figures = notable(c)
    if figures:
        lines += ["", "figures (median, change with 95 % interval):"]
        lines += _table(
            [
                (
                    f"  {f.criterion}", f.subject, f.verdict, numbers.quantity(f.old, f.unit), "->",
                    numbers.quantity(f.new, f.unit), change_text(f), noise_text(f),
                )
                for f in figures[:_TEXT_ROWS]
            ]
        )  # fmt: skip
        if len(figures) > _TEXT_ROWS:
            lines.append(f"  and {len(figures) - _TEXT_ROWS} more; --format html or json has all")
    same = len(c.figures) - len(figures)
    lines += ["", f"the same: {numbers.plural(len(c.criteria) - len(changed), 'criterion', 'criteria')}, "
              f"{numbers.plural(same, 'figure')} within noise or small"]  # fmt: skip
    lines += [f"tested: {tested_text(c)}"] * bool(c.tested)
    lines += [f"only before: {', '.join(c.subjects_gone[:5])}{', …' if len(c.subjects_gone) > 5 else ''}"] * bool(
        c.subjects_gone
    )
    lines += [f"only after: {', '.join(c.subjects_new[:5])}{', …' if len(c.subjects_new) > 5 else ''}"] * bool(
        c.subjects_new
    )
    lines += [f"note: {note}" for note in c.notes]
    return "\n".join(lines) + "\n"


def _nodes(names: Sequence[str]) -> str:
    return f"({', '.join(names[:4])}{f' and {len(names) - 4} more' if len(names) > 4 else ''})" if names else ""


_BAR = 200


def bar(figure: Figure, widest: float) -> Markup:
    """The change drawn: a line at no change, the interval, and a dot. `widest` is the change at the edges."""
    if figure.change is None:
        return Markup("")

    def x(change: float) -> float:
        return _BAR / 2 + max(-1.0, min(1.0, change / widest)) * (_BAR / 2 - 6)

    ends = [figure.change if v is None else v for v in (figure.change_low, figure.change_high)]
    fill = {"worse": ALARM, "better": GREEN}.get(figure.verdict, PAPER)
    drawn = (
        path("M", _BAR / 2, "0V14", stroke=MUTED, dash="2 2"),
        path("M", x(ends[0]), "7H", x(ends[1]), stroke=INK, thick=2),
        element("circle", cx=x(figure.change), cy=7, r=4, fill=fill, stroke=INK),
    )
    return svg(_BAR, 14, *drawn, class_="bar", aria_label=f"{change_text(figure)}, {figure.verdict}")


@cache
def _environment() -> Environment:
    return environment(
        "validation.compare",
        change_text=change_text,
        noise_text=noise_text,
        tested_text=tested_text,
        parts_text=parts_text,
    )


def as_html(comparison: Comparison) -> str:
    """One file: no script, nothing from elsewhere."""
    figures = notable(comparison)
    widest = max([abs(f.change) for f in figures if f.change is not None], default=0.1) or 0.1
    families: dict[str, list[object]] = {}
    for criterion in comparison.criteria:
        key = family_of(criterion.id)
        families.setdefault(FAMILIES.get(key, key), []).append(criterion)
    return (
        _environment()
        .get_template("compare.html")
        .render(
            c=comparison,
            rehearsal=comparison.rehearsal,
            constructed=comparison.constructed,
            families=families,
            changed=[x for x in comparison.criteria if x.verdict != "same"],
            figures=[(f, bar(f, widest)) for f in figures],
            same=[f for f in comparison.figures if f.verdict == "same"],
            widest=widest,
        )
    )
