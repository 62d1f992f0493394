"""A verdict in about ten lines: what a run ends with on a terminal, in a pipe and in a log.

Words for people, made from typed data (validation/verdict/glance.py); nobody parses them. Nothing here is padded.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log10
from pathlib import Path

from rich.console import Console
from rich.text import Text

from toolkit.progress import duration
from validation.base.counting import number_of
from validation.model import VerdictDoc
from validation.model.points import counted
from validation.verdict.glance import Failure, Glance, Group, Suspected

MOST = 3
"""Of failures of a group, of groups, of suspects, and of what keeps a run incomplete: the others are counted."""
MOST_IDS = 8
LONGEST = 220
"""Characters of a reason or a remedy; --details has all of them."""
MORE = "(--details)"
_GAP = "   "
_HELD = "\u00a0"
"""A blank at which a line is not folded."""
ASIDE = ("REHEARSAL", "INSPECTION")
"""Sign-offs that say nothing of the outcome, which is named beside them."""
_STYLES = {"passed": "bold green", "failed": "bold red", "incomplete": "bold yellow"}
_COUNTED = (("fail", "failed"), ("pass", "passed"), ("waived", "waived"), ("not-measured", "not measured"))


@dataclass(frozen=True)
class Line:
    """What is printed as one line where it fits. `hang`: columns by which what does not fit is indented; `commands`:
    a shell takes it as it stands, folded or not.
    """

    text: str
    hang: int = 0
    style: str = ""
    commands: bool = False

    def folded(self, width: int) -> list[str]:
        """Its lines, none of them padded. A word, such as a path, is never broken."""
        if len(self.text) <= width:
            return [self.text.replace(_HELD, " ")]
        lead = self.text[: len(self.text) - len(self.text.lstrip())]
        text = self.text.strip()
        hang = " " * min(self.hang, max(len(lead), width // 4))
        room = width - 2 * self.commands  # for the sign that a command goes on
        fold = textwrap.TextWrapper(room, lead, hang, break_long_words=False, break_on_hyphens=False)
        parts = [part.replace(_HELD, " ") for part in fold.wrap(text)]
        if self.commands:
            parts[:-1] = [part if part.endswith(";") else f"{part} \\" for part in parts[:-1]]
        return parts


def print_lines(console: Console, lines: Sequence[Line]) -> None:
    """Each as wide as the console at most."""
    for line in lines:
        for part in line.folded(console.width):
            console.print(Text(part, style=line.style), soft_wrap=True)


def state(verdict: VerdictDoc, aside: str = "") -> tuple[str, str]:
    """The verdict in a word or two, and its colour: `FAILED (rehearsal)`, `ACCEPTED`. `aside`: what else has to be said
    of it, in the same brackets.

    Of a rehearsal or an inspection a pass is not green: nobody should take it for what hardware is signed off with.
    """
    unowed = verdict.sign_off in ASIDE and verdict.outcome == "passed"
    return state_words(verdict.sign_off, verdict.outcome, aside), "bold cyan" if unowed else _STYLES[verdict.outcome]


def state_words(sign_off: str, outcome: str, aside: str = "") -> str:
    """A verdict's state for people, the same wherever a run is named."""
    if sign_off in ASIDE:
        return f"{outcome.upper()} ({', '.join(filter(None, (sign_off.lower(), aside)))})"
    return f"{sign_off} ({aside})" if aside else sign_off


def verdict_lines(
    seen: Glance, where: tuple[str, Path] | None, next_: Sequence[str], notes: Sequence[str] = (), aside: str = ""
) -> list[Line]:
    """The whole end of a run. `where`: what there is to look at, and where it is; `next_`: commands to run next;
    `notes`: what else a reader has to know of the verdict.
    """
    verdict = seen.verdict
    lines = [_first(seen, aside)]
    if verdict.profile is not None:
        lines.append(Line(f"  profile: {verdict.profile.name}, {number_of(len(verdict.owed), 'criterion')} owed", 11))
    for group in seen.groups[:MOST]:
        lines += _group(group)
    lines += _rest(seen.groups[MOST:])
    lines += _incomplete(seen)
    for waived in seen.waived[:MOST]:
        named = [f"{id_} for {subject}" if subject else id_ for id_, subject in waived.criteria]
        what = number_of(len(named), "criterion") if len(named) > MOST else ", ".join(named)
        words = f"waived: {what}, by {waived.who} on {waived.when}, until {waived.until}: {waived.why}"
        lines.append(Line(f"  {_clip(words)}", 10, "yellow"))
    if seen.waived[MOST:]:
        count = number_of(sum(len(waived.criteria) for waived in seen.waived[MOST:]), "more criterion")
        lines.append(Line(f"  waived: {count} by others{_GAP}{MORE}", 10, "yellow"))
    if verdict.points:
        held = any(point.keeps_back for point in verdict.points)
        lines.append(Line(f"  punch list: {counted(verdict.points)}", 14, "yellow" if held else ""))
    if seen.unmeasured:
        reasons = ", ".join(_held(f"{len(one.criteria)} {one.why.value}") for one in seen.unmeasured)
        lines.append(Line(f"  not measured: {reasons}{_GAP}{MORE}", 16))
    lines += [Line(f"  {note}", 4) for note in notes]
    if where is not None:
        lines.append(Line(f"{where[0]:8}{where[1]}", 8))
    if next_:
        lines.append(Line(f"next    {'; '.join(next_)}", 8, commands=True))
    lines.append(Line(f"exit code {verdict.exit_code}"))
    return lines


def _first(seen: Glance, aside: str) -> Line:
    word, style = state(seen.verdict, aside)
    counted = [_held(f"{seen.counts[key]} {words}") for key, words in _COUNTED if seen.counts.get(key) or key == "pass"]
    took = f"{_GAP * 2}{duration(seen.took_s)}" if seen.took_s is not None else ""
    return Line(f"{word}{_GAP}{', '.join(counted)} of {len(seen.verdict.criteria)}{took}", 2, style)


def _group(group: Group) -> list[Line]:
    lines = [Line(f"  FAIL {_failed(one)}", 7, "red") for one in group.failures[:MOST]]
    if group.failures[MOST:]:
        lines.append(Line(f"  FAIL {_some([one.id for one in group.failures[MOST:]])}", 7, "red"))
    remedies: list[str] = []
    for suspect in group.suspects[:MOST]:
        lines.append(Line(f"       at fault: {_suspect(suspect)}", 17))
        finding = suspect.finding
        if not group.failures:
            lines.append(Line(f"       {_clip(finding.text)}", 7))
        if finding.cause:
            lines.append(Line(f"       cause: {_clip(finding.cause)}", 14))
        if finding.remedy not in remedies:
            remedies.append(finding.remedy)
    if group.suspects[MOST:]:
        others = ", ".join(str(suspect.finding.about) for suspect in group.suspects[MOST:])
        lines.append(Line(f"       at fault too: {_clip(others)}", 21))
    lines += [Line(f"       do: {_clip(_lowered(remedy))}", 11) for remedy in remedies]
    return lines


def _rest(groups: Sequence[Group]) -> list[Line]:
    ids = [one.id for group in groups for one in group.failures]
    names = dict.fromkeys(str(suspect.finding.about) for group in groups for suspect in group.suspects)
    lines = [Line(f"  FAIL {_some(ids)}", 7, "red")] if ids else []
    return lines + ([Line(f"       at fault: {_clip(', '.join(names))}", 17)] if names else [])


def _failed(one: Failure) -> str:
    """`tr.tcpbw  TCP bandwidth   0.099 Gbit/s, needs 0.941   6 of 12 pairs`."""
    things = one.things.removesuffix("s") if one.of == 1 else one.things
    return f"{one.id}  {one.title}{_GAP}{_found(one)}{_GAP}{one.failed} of {one.of} {things}"


def _found(one: Failure) -> str:
    if one.value is None or not isinstance(one.limit, float):
        return _clip(one.reason)
    value, limit = figures(one.value, one.limit)
    return f"{value} {one.unit}, {one.relation} {limit}" if one.unit else f"{value}, {one.relation} {limit}"


def figures(value: float, limit: float) -> tuple[str, str]:
    """Both with as many decimals as give the limit three digits, or as show that they differ."""
    places = max(0, 2 - floor(log10(abs(limit)))) if limit else 3
    for more in range(7):
        shown = f"{value:.{places + more}f}", f"{limit:.{places + more}f}"
        if shown[0] != shown[1] and (float(shown[0]) or not value):
            break
    return shown


def _suspect(suspect: Suspected) -> str:
    """`port gpu2/fab0 (88 %), all 6 of its pairs, 6 of 6 confirmed by a repeat`."""
    finding = suspect.finding
    name = str(finding.about)
    words = name if name.startswith(finding.kind) else f"{finding.kind} {name}"
    if finding.confidence is not None:
        words += f" ({finding.confidence * 100:.0f} %)"
    its = "its pairs" if len(finding.about.ends) == 1 else "pairs"
    if suspect.of:
        words += (
            f", all {suspect.of} of {its}"
            if suspect.pairs == suspect.of
            else f", {suspect.pairs} of {suspect.of} of {its}"
        )
    if suspect.repeated:
        words += f", {suspect.repeated} of {suspect.pairs} confirmed by a repeat"
    return words


def _incomplete(seen: Glance) -> list[Line]:
    verdict, lines = seen.verdict, []
    if verdict.missing:
        count = len(verdict.missing)
        some = ", ".join(verdict.missing[:MOST]) + (", ..." if len(verdict.missing) > MOST else "")
        words = f"{count} of {number_of(verdict.planned, 'planned measurement')} without a usable result: {some}"
        lines.append(Line(f"  MISSING {words}", 10, "yellow"))
    for one in seen.open[:MOST]:
        lines.append(Line(f"  OPEN {one.id}  {one.title}{_GAP}{_clip(one.reason)}", 7, "yellow"))
    if seen.open[MOST:]:
        lines.append(Line(f"  OPEN {_some([one.id for one in seen.open[MOST:]])}", 7, "yellow"))
    for owed in seen.owed:
        lines.append(Line(f"  OPEN {len(owed.criteria)} owed, {owed.why.value}: {_some(owed.criteria)}", 7, "yellow"))
    if verdict.outcome == "incomplete" and not lines:
        lines += [Line(f"  OPEN {_clip(note)}", 7, "yellow") for note in verdict.notes[-1:]]
    return lines


def _some(ids: Sequence[str]) -> str:
    rest = len(ids) - MOST_IDS
    return ", ".join(ids[:MOST_IDS]) + (f" and {rest} more{_GAP}{MORE}" if rest > 0 else "")


def _held(text: str) -> str:
    return text.replace(" ", _HELD)


def _clip(text: str) -> str:
    """Its beginning, by whole words."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST].rsplit(' ', 1)[0]} ... {MORE}"


def _lowered(text: str) -> str:
    """Of a sentence that follows a colon the first letter; a name or an abbreviation stays as it is."""
    first, _, rest = text.partition(" ")
    return f"{first.lower()} {rest}" if first[1:].islower() else text
