"""Which BIOS attributes are to be set, in which order, and why one cannot: by a BMC's own attribute registry. No I/O.

A registry (DMTF DSP0266, AttributeRegistry) lists each attribute with its values, and under which values of others it
is read-only or follows from them. A BMC accepts what contradicts it, and changes nothing.
"""

from __future__ import annotations

import copy
import difflib
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Values = dict[str, Any]
SECRET = re.compile(r"passw|secret|token|key", re.IGNORECASE)
"""Attributes that are never set, read or compared here."""
BY_HAND = {"BootMode": "an installed system does not start in another boot mode: set it before the installation"}
"""Attributes that are reported and never set, and why."""
YES_NO = {"True": {"On", "Yes", "True"}, "False": {"Off", "No", "False"}}
"""Values of a BIOS that YAML reads as others where they have no quotes."""
MOST_ROUNDS = 10
"""Of attributes that follow from one another."""
_CONDITIONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "EQU": operator.eq, "NEQ": operator.ne, "GTR": operator.gt, "GEQ": operator.ge, "LSS": operator.lt,
    "LEQ": operator.le,
}  # fmt: skip


@dataclass(frozen=True)
class Wish:
    """Values that are right, the first of which is set. `explicit`: named by the inventory, so it must be met."""

    values: tuple[str, ...]
    explicit: bool = False


@dataclass(frozen=True)
class Rule:
    """A dependency: `attribute` is read-only, or has a value, while the conditions hold."""

    attribute: str
    read_only: bool
    value: Any
    terms: tuple[tuple[str, str, str, Any], ...]

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether the conditions hold with these values; never, where a term is of an unknown kind."""
        result = False
        for number, (join, name, condition, value) in enumerate(self.terms):
            compare = _CONDITIONS.get(condition)
            try:
                one = compare is not None and name in values and compare(values[name], value)
            except TypeError:
                one = False
            result = one if not number else (result or one) if join == "OR" else (result and one)
        return result

    @property
    def sources(self) -> tuple[str, ...]:
        """The attributes that it depends on."""
        return tuple(name for _, name, _, _ in self.terms)


@dataclass
class Registry:
    """A BIOS's attributes and rules. `label`: whose it is, for messages."""

    label: str
    attributes: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    rules: list[Rule] = field(default_factory=list)

    def lock(self, name: str, values: Mapping[str, Any]) -> str:
        """Why an attribute is read-only with these values, "" where it is not."""
        for rule in self.rules:
            if rule.read_only and rule.attribute == name and rule.holds(values):
                return " and ".join(f"{source} is {values.get(source)}" for source in dict.fromkeys(rule.sources))
        depends = any(rule.read_only and rule.attribute == name for rule in self.rules)
        return "" if depends or self.attributes.get(name, {}).get("ReadOnly") is not True else "it always is"

    def followed(self, values: Mapping[str, Any]) -> Values:
        """The same values, with those that follow from others."""
        now = dict(values)
        for _ in range(MOST_ROUNDS):
            new = {rule.attribute: rule.value for rule in self.rules
                   if not rule.read_only and rule.attribute in now and rule.holds(now)}  # fmt: skip
            if all(now[name] == value for name, value in new.items()):
                break
            now.update(new)
        return now

    def wrong(self, name: str, value: str) -> str:
        """What is wrong with a value, "" for nothing."""
        entry = self.attributes[name]
        known = [str(one.get("ValueName")) for one in entry.get("Value") or () if isinstance(one, Mapping)]
        if entry.get("Type") == "Enumeration" and value not in known:
            near = difflib.get_close_matches(value.lower(), [one.lower() for one in known], 1, 0.7)
            hint = next((f"; is {one} meant?" for one in known if near and one.lower() == near[0]), "")
            if value in YES_NO and set(known) & YES_NO[value]:
                hint = f"; YAML reads {'/'.join(sorted(YES_NO[value] & set(known)))} as {value}: write it in quotes"
            return f"{name} has no value {value}, only {', '.join(known)}{hint}"
        if entry.get("Type") == "Integer":
            low, high = entry.get("LowerBound"), entry.get("UpperBound")
            if not re.fullmatch(r"-?\d{1,18}", value):
                return f"{name} is a whole number, not {value}"
            if (low is not None and int(value) < low) or (high is not None and int(value) > high):
                return f"{name} is from {low} to {high}, not {value}"
        return ""

    def typed(self, name: str, value: str) -> Any:
        """A value as the BMC wants it."""
        return int(value) if self.attributes[name].get("Type") == "Integer" else value


def registry_of(document: Mapping[str, Any], label: str) -> Registry:
    """What a registry's document holds; entries of another form are left out."""
    entries = document.get("RegistryEntries")
    entries = entries if isinstance(entries, Mapping) else {}
    found = Registry(label)
    for one in _objects(entries.get("Attributes")):
        if isinstance(one.get("AttributeName"), str):
            found.attributes[one["AttributeName"]] = one
    for one in _objects(entries.get("Dependencies")):
        made = one.get("Dependency")
        if not isinstance(made, Mapping) or made.get("MapToProperty") not in ("ReadOnly", "CurrentValue"):
            continue
        read_only = made["MapToProperty"] == "ReadOnly"
        if read_only and made.get("MapToValue") is not True:
            continue
        terms = tuple(
            (str(term.get("MapTerms", "AND")), str(term.get("MapFromAttribute")), str(term.get("MapFromCondition")),
             term.get("MapFromValue"))
            for term in _objects(made.get("MapFrom"))
        )  # fmt: skip
        found.rules.append(Rule(str(made.get("MapToAttribute")), read_only, made.get("MapToValue"), terms))
    return found


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


@dataclass
class Plan:
    """`steps`: what is set, one after the other. `faults`: why the wishes cannot be met, `notes`: what is left out."""

    steps: list[Values] = field(default_factory=list)
    changes: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def words(self) -> list[str]:
        """`SysProfile: Custom to PerfOptimized`."""
        return [f"{name}: {old} to {new}" for name, (old, new) in sorted(self.changes.items())]


def wishes_of(table: Mapping[str, tuple[Sequence[str], str]], given: Mapping[str, Any]) -> dict[str, Wish]:
    """The wishes of the table for GPU nodes, and those of the inventory in addition or in their place."""
    wishes = {name: Wish(tuple(values)) for name, (values, _) in table.items()}
    return wishes | {str(name): Wish((str(value),), True) for name, value in given.items()}


def plan_of(now: Mapping[str, Any], registry: Registry, wishes: Mapping[str, Wish]) -> Plan:
    """What to set so that the wishes hold. With faults nothing is to be set."""
    plan = Plan()
    targets = {}
    for name, wish in wishes.items():
        refused = _refused(name, wish, now, registry)
        if refused:
            (plan.faults if wish.explicit and name not in BY_HAND else plan.notes).append(refused)
        elif name in now and str(now[name]) not in wish.values and name not in BY_HAND:
            fitting = next((one for one in wish.values if not registry.wrong(name, one)), None)
            if fitting is None:
                plan.notes.append(f"{name} is {now[name]}: {registry.wrong(name, wish.values[0])}")
            else:
                targets[name] = registry.typed(name, fitting)
    values = dict(now)
    for names in _levels(targets, registry):
        step = {}
        for name in names:
            if str(values[name]) == str(targets[name]):
                continue  # it follows from what an earlier step sets
            cause = registry.lock(name, values)
            if cause:
                words = f"{name} cannot be {targets[name]}: it is read-only while {cause}"
                (plan.faults if wishes[name].explicit else plan.notes).append(f"{words}{_cure(cause)}")
                targets.pop(name)
            else:
                step[name] = targets[name]
        if step:
            plan.steps.append(step)
            values = registry.followed({**values, **step})
    for name, wish in wishes.items():  # those too that were right before
        was_right = name in now and str(now[name]) in wish.values
        if (name in targets or was_right) and str(values[name]) not in wish.values:
            words = f"{name} cannot be {wish.values[0]}: it becomes {values[name]} by another attribute that is set"
            if not wish.explicit and name in targets:  # the others are set without it
                found = plan_of(now, registry, {other: one for other, one in wishes.items() if other != name})
                found.notes.append(words)
                return found
            (plan.faults if wish.explicit else plan.notes).append(words)
    plan.changes = {name: (now[name], values[name]) for name in sorted(now) if now[name] != values[name]}
    return plan


def _cure(cause: str) -> str:
    return "; wish SysProfile: Custom too" if cause.startswith("SysProfile is") else ""


def _refused(name: str, wish: Wish, now: Mapping[str, Any], registry: Registry) -> str:
    """Why a wish cannot be met whatever the others are, "" where it can."""
    if SECRET.search(name):
        return f"{name} is a password or key: it is not set here"
    if name in BY_HAND:
        right = name not in now or str(now[name]) in wish.values
        return "" if right else f"{name} is {now[name]}, not {wish.values[0]}, and is not set: {BY_HAND[name]}"
    if name not in now or name not in registry.attributes:
        near = difflib.get_close_matches(name, registry.attributes, 1, 0.75)
        hint = f"; is {near[0]} meant?" if near else ""
        return f"the BIOS of {registry.label} has no attribute {name}{hint}" if wish.explicit else ""
    if wish.explicit and (words := registry.wrong(name, wish.values[0])):
        return words
    differs = str(now[name]) not in wish.values
    if differs and registry.lock(name, now) == "it always is":
        return f"{name} is {now[name]} and always read-only on {registry.label}"
    return ""


def _levels(targets: Mapping[str, Any], registry: Registry) -> list[list[str]]:
    """The attributes, those that others depend on first."""
    needs = {
        name: {source for rule in registry.rules if rule.attribute == name for source in rule.sources}
        & (targets.keys() - {name})
        for name in targets
    }
    levels: list[list[str]] = []
    left = set(targets)
    while left:
        ready = sorted(name for name in left if not needs[name] & left) or sorted(left)  # a circle: all that is left
        levels.append(ready)
        left -= set(ready)
    return levels


def differing(now: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """`NAME is OLD, not NEW` of what a BIOS has and is not as wanted."""
    return [f"{name} is {now[name]}, not {value}" for name, value in sorted(wanted.items())
            if name in now and str(now[name]) != str(value) and not SECRET.search(name)]  # fmt: skip


def profile_values(profile: Any) -> Values:
    """BIOS attributes of an exported server configuration profile that an import sets."""
    configuration = profile.get("SystemConfiguration") if isinstance(profile, Mapping) else None
    found: Values = {}
    for part in _objects(configuration.get("Components") if isinstance(configuration, Mapping) else None):
        if str(part.get("FQDD", "")).startswith("BIOS."):
            found |= {
                str(one["Name"]): one.get("Value")
                for one in _objects(part.get("Attributes"))
                if "Name" in one and str(one.get("Set On Import", "True")) == "True" and not SECRET.search(one["Name"])
            }
    return found


def without_by_hand(profile: Mapping[str, Any]) -> dict[str, Any]:
    """The profile without what is never set: the host may have another boot mode since, and another system."""
    found: dict[str, Any] = copy.deepcopy(dict(profile))
    for part in _objects(found["SystemConfiguration"].get("Components")):
        if isinstance(part, dict) and isinstance(part.get("Attributes"), list):
            part["Attributes"] = [one for one in _objects(part["Attributes"]) if one.get("Name") not in BY_HAND]
    return found


def by_hand(now: Mapping[str, Any], profile: Mapping[str, Any]) -> list[str]:
    """What of a profile is not put back, and why."""
    then = profile_values(profile)
    return [f"{name} is {now[name]}, was {then[name]}, and is not put back: {why}" for name, why in BY_HAND.items()
            if name in now and name in then and str(now[name]) != str(then[name])]  # fmt: skip


def joined(words: Iterable[str]) -> str:
    """Several reasons in one sentence."""
    return "; ".join(words)
