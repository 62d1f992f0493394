"""The registry's certificates: a new authority beside the old one, trusted by all before anything is signed by it."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from toolkit.errors import UsageFault
from toolkit.rotate import there
from toolkit.rotate.nodes import Faults, Machines, Say, listed
from toolkit.rotate.outcome import Done
from toolkit.upgrade.state import now

UNIT = "docker-registry.service"
STEPS = ("trust", "exchange", "retire")
"""Each can be done again, and all nodes pull images in between."""
WORDS = {
    "trust": "all nodes trust the new authority beside the old one",
    "exchange": "the registry and all nodes take certificates of the new authority",
    "retire": "the old authority is trusted no more",
}
CANNOT = (
    "the registry restarts three times, for a second each; Docker tries a pull in flight again, and what runs in "
    "containers is not concerned",
)


class RegistryRotation:
    """One of a site."""

    def __init__(self, machines: Machines, say: Say, clock: Callable[[], float] = time.monotonic) -> None:
        """`machines`: all of the site; those that pull from the registry take part."""
        self.machines, self.say, self.clock = machines, say, clock
        self.address = ""
        self.clients: tuple[str, ...] = ()

    def _look(self) -> dict[str, Any] | None:
        """The open rotation's note, {} without one; None where there is no registry. UsageFault for a node that is
        away."""
        looked, faults = self.machines.all("look")
        name = self.machines.head.name
        if name not in looked:
            raise UsageFault(f"{name}: {faults[name]}; nothing was changed")
        self.address = looked[name]["registry"]
        if not self.address:
            return None
        note = dict(looked[name]["open"].get("registry", {}))
        if faults:
            raise UsageFault(
                f"{listed(faults)}; nothing was changed. Mend that first; a node that is away can be left out with "
                "--without, and takes the new certificates by its next deployment"
            )
        self.clients = tuple(sorted(node for node, said in looked.items() if self.address in said["clients"]))
        if not note and (bad := self._greeted()):
            raise UsageFault(
                f"the registry is not reached: {listed(bad)}; nothing was changed. Deploy these nodes first"
            )
        return note

    def plan(self) -> Done:
        """What would be done."""
        note = self._look()
        if note is None:
            return Done("registry", "nothing to do", why=f"{self.machines.head.name} has no registry of the toolkit's")
        if note:
            words = f"begun {note['began']} and stopped in step {note['step']}; the next call ends it"
            return Done("registry", "open", why=words)
        changes = {name: self._client_paths() for name in self.clients}
        changes.setdefault(self.machines.head.name, []).extend(
            [f"{there.REGISTRY}/{one}.{end}" for one in there.PAIRS for end in ("crt", "key")]
            + [f"restarts {UNIT.split('.')[0]}"]
        )
        return Done("registry", "planned", changes, CANNOT)

    def _client_paths(self) -> list[str]:
        return [f"{there.CLIENTS}/{self.address}/{name}" for name in ("ca.crt", "client.cert", "client.key")]

    def go(self, back: bool = False) -> Done:
        """All of it. Where it stops, images can be pulled as before, and the same command goes on."""
        began, note = self.clock(), self._look()
        if note is None:
            return Done("registry", "nothing to do", why=f"{self.machines.head.name} has no registry of the toolkit's")
        if note:
            self.say(
                f"a rotation of the registry's certificates, begun {note['began']}, stopped in step {note['step']}"
            )
        elif back:
            return Done("registry", "nothing to do", why="no rotation of the registry's certificates is open")
        else:
            note = {"began": now(), "step": STEPS[0], "direction": "forward"}
            note = dict(self.machines.on_head("begin", what="registry", address=self.address, note=note)["note"])
        if back and note["step"] == "retire":
            raise UsageFault("--back: the old authority may be gone on some nodes already; run it without --back")
        back = back or note["direction"] == "back"
        note["direction"] = "back" if back else "forward"
        files = self.machines.on_head("held", what="registry")["files"]
        # back: first all trust both again, then the old certificates are served, then the new authority goes
        new, old = ("old", "new") if back else ("new", "old")
        for step in STEPS[0 if back else STEPS.index(note["step"]) :]:
            note["step"] = step if not back else "trust"
            self.machines.on_head("note", what="registry", note=note)
            self.say(WORDS[step] if not back else f"going back: {step}")
            if faults := self._step(step, files, new, old):
                why = f"{step}: {listed(faults)}; images are pulled as before elsewhere"
                return Done("registry", "open", left=faults, seconds=self.clock() - began, why=why)
        self.machines.on_head("end", what="registry")
        return Done("registry", "gone back" if back else "done", seconds=self.clock() - began)

    def _step(self, step: str, files: Mapping[str, str], new: str, old: str) -> Faults:
        """On the head, then on the nodes, then tried by each. A node has its trust before, and the registry both."""
        both = _joined(files[f"{new}.ca.crt"], files[f"{old}.ca.crt"])
        trusted = files[f"{new}.ca.crt"] if step == "retire" else both
        head = [_file(f"{there.REGISTRY}/ca.crt", trusted, 0o644)]
        node = [_file(f"{there.CLIENTS}/{self.address}/ca.crt", trusted, 0o644)]
        if step != "trust":
            folder = f"{there.CLIENTS}/{self.address}"
            head += [
                _file(f"{there.REGISTRY}/{name}.{end}", files[f"{new}.{name}.{end}"], 0o644 if end == "crt" else 0o600,
                      "docker-registry" if (name, end) == ("server", "key") else "")
                for name in ("server", "client") for end in ("key", "crt")
            ]  # fmt: skip
            node += [_file(f"{folder}/client.key", files[f"{new}.client.key"], 0o600)]
            node += [_file(f"{folder}/client.cert", files[f"{new}.client.crt"], 0o644)]
        if step == "retire":
            head.append(_file(f"{there.REGISTRY}/ca.key", files[f"{new}.ca.key"], 0o600))
        name = self.machines.head.name
        if step != "trust":  # a node's certificate is known to the registry since the step before
            return self._placed({one: node for one in self.clients}) or self._served(name, head)
        return (
            self._served(name, head, greet=False)
            or self._placed({one: node for one in self.clients})
            or self._greeted()
        )

    def _served(self, head: str, files: list[dict[str, Any]], greet: bool = True) -> Faults:
        if faults := self._placed({head: files}):
            return faults
        _, faults = self.machines.each("restart", {head: {"unit": UNIT}})
        return faults or (self._greeted() if greet else {})

    def _placed(self, wanted: Mapping[str, Iterable[dict[str, Any]]]) -> Faults:
        _, faults = self.machines.each("place", {name: {"files": list(files)} for name, files in wanted.items()})
        return faults

    def _greeted(self) -> Faults:
        """Each node against the registry, with what Docker has there."""
        faults: Faults = {}
        for pause in (0.5, 2.0, 5.0, 0.0):  # a registry that was restarted listens a moment later
            said, faults = self.machines.each("greet", {name: {"address": self.address} for name in self.clients})
            faults |= {name: str(one["fault"]) for name, one in said.items() if one["fault"]}
            if not faults:
                return {}
            time.sleep(pause)
        return faults


def _joined(*parts: str) -> str:
    return base64.b64encode(b"".join(base64.b64decode(part) for part in parts)).decode()


def _file(path: str, content: str, mode: int, user: str = "") -> dict[str, Any]:
    return {"path": path, "content": content, "mode": mode, "user": user, "role": "horovod"}
