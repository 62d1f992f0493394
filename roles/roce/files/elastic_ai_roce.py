#!/usr/bin/python3
"""Bring the RoCE settings of one network port to the policy, show them, or say where they drifted.

  elastic-ai-roce apply IF      reads the port and writes only what differs; keeps what was there before, once
  elastic-ai-roce check IF...   says what differs from the policy; writes nothing
  elastic-ai-roce show IF...    says what the port has; writes nothing
  elastic-ai-roce restore IF    puts back what was there before the first apply

A device without DCB (a virtual one) gets what RDMA itself sends by: RoCE version, type of service, traffic class.
Exit codes: 0 as wanted, 1 a write or a read failed, 2 wrong call, 3 drift (check), 4 nothing of it applies (apply).
`--json` prints one document for all ports named. The policy is a JSON file, or the text after `--policy`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

POLICY = Path("/etc/elastic-ai/roce.json")
BEFORE = Path("/var/lib/elastic-ai/roce")
PRIORITIES = range(8)  # IEEE 802.1Q
SCALARS = ("ecn", "cnp_dscp", "cnp_priority", "roce_mode", "tos", "traffic_class")
MARKING = ("roce_mode", "tos", "traffic_class")  # what RDMA packets carry, whether or not the device has queues for it


class Failed(Exception):
    """A command or a write that the kernel or the driver refused."""


def run(*args):
    """Exit code, output and complaint of a tool; a tool that is missing is a complaint too."""
    try:
        done = subprocess.run(
            args,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env={**os.environ, "LC_ALL": "C", "LANGUAGE": ""},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 127, "", f"{args[0]}: {error}"
    return done.returncode, done.stdout, " ".join((done.stderr or done.stdout).split())


def must(*args):
    """Run a writing command; Failed with what it said."""
    code, _, complaint = run(*args)
    if code:
        raise Failed(f"{' '.join(args)}: {complaint or f'exit code {code}'}")


def word(path):
    """Text of a small file, None where it is missing or can't be read."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None


# -- what the tools print --------------------------------------------------------------------------------------------


def parse_dcb(pfc, ets, app):
    """The port's state from `dcb -j pfc|ets|app show`; "" of what the driver does not tell, which is None then.

    Trust is DSCP when the APP table has a DSCP entry: so the kernel's mlx5 driver sees it
    (drivers/net/ethernet/mellanox/mlx5/core/en_dcbnl.c)."""
    pfc, ets, app = (json.loads(text) if text.strip() else None for text in (pfc, ets, app))
    if not pfc or "prio_pfc" not in pfc:
        raise ValueError("no PFC in the output of dcb")
    classes, dscp = None, None
    if ets and all(key in ets for key in ("prio_tc", "tc_tsa", "tc_bw")):
        classes = used_classes(ets["prio_tc"], dict(enumerate(ets["tc_tsa"])), dict(enumerate(ets["tc_bw"])))
    if app is not None:
        table = app.get("dscp_prio", [])
        dscp = {str(key): prio for key, prio in (table.items() if isinstance(table, dict) else table)}
    return {
        "trust": None if dscp is None else "dscp" if dscp else "pcp",
        "dscp_prio": dscp,
        "pfc": [prio for prio, on in enumerate(pfc["prio_pfc"]) if on],
        "pfc_delay": pfc.get("delay", 0),
        "ets": classes,
    }


#: A traffic class of mlnx_qos; of a driver that limits no rates the tool prints what follows `tsa: ` alone
#: (python/mlnx_qos in Mellanox/mlnx-tools), and the classes are counted in their order.
CLASS = re.compile(r"(?:tc: (\d+) (?:ratelimit: .*?, )?tsa: )?(ets|strict|vendor|cbs|reserved)(?:, bw: (\d+)%)?\s*$")


def parse_mlnx_qos(text):
    """The port's state from `mlnx_qos -i IF`; dscp_prio is empty under PCP trust, for it isn't printed then.

    None of what the driver does not tell: the tool says `... not supported on your system` instead."""
    trust = re.search(r"^\s*Priority trust state: (\w+)", text, re.M)
    enabled = re.search(r"^\s*enabled((?:\s+[01]){8})\s*$", text, re.M)
    without_pfc = re.search(r"^\s*(?:PFC|Priority flow control).* not supported.*$", text, re.M | re.I)
    if not enabled and not without_pfc:
        raise ValueError("no PFC line in the output of mlnx_qos")
    dscp = {}
    for prio, values in re.findall(r"^\s*prio:(\d) dscp:([\d,]+)", text, re.M):
        dscp.update({str(int(value)): int(prio) for value in values.split(",") if value})
    delay = re.search(r"^\s*Cable len: (\d+)", text, re.M)
    prio_tc, tsa, bandwidth, tc, last = {}, {}, {}, None, -1
    for line in text.splitlines():
        head = CLASS.match(line)
        member = re.match(r"\s+priority:\s+(\d)\s*$", line)
        if head:
            tc = last = int(head[1]) if head[1] else last + 1
            tsa[tc], bandwidth[tc] = head[2], int(head[3] or 0)
        elif member and tc is not None:
            prio_tc[int(member[1])] = tc
    if prio_tc and sorted(prio_tc) != list(PRIORITIES):
        raise ValueError("not every priority has a traffic class in the output of mlnx_qos")
    return {
        "trust": trust[1] if trust else None,
        "dscp_prio": dscp if trust else None,
        "pfc": [prio for prio, on in enumerate(enabled[1].split()) if on == "1"] if enabled else None,
        "pfc_delay": int(delay[1]) if delay else 0,
        "ets": used_classes([prio_tc[prio] for prio in PRIORITIES], tsa, bandwidth) if prio_tc else None,
    }


def in_order(ets):
    """The classes as they follow each other: priorities, algorithm and share of each.

    Their numbers say no more, and not every tool prints them."""
    used = sorted(set(ets["prio_tc"]))
    return [
        (
            [prio for prio, tc in enumerate(ets["prio_tc"]) if tc == number],
            ets["tsa"].get(str(number)),
            ets["bandwidth_percent"].get(str(number)),
        )
        for number in used
    ]


def used_classes(prio_tc, tsa, bandwidth):
    """ETS without what no priority uses, and bandwidth only where ETS shares it: drivers report 100 % for others."""
    used = sorted(set(prio_tc))
    shares = {str(tc): bandwidth[tc] for tc in used if tsa[tc] == "ets"}
    return {"prio_tc": list(prio_tc), "tsa": {str(tc): tsa[tc] for tc in used}, "bandwidth_percent": shares}


def parse_pause(text):
    """Global pause from `ethtool -a IF`: {"rx": bool, "tx": bool}."""
    found = dict(re.findall(r"^(RX|TX):\s+(on|off)\s*$", text, re.M))
    if len(found) != 2:
        raise ValueError("no RX and TX line in the output of ethtool -a")
    return {key.lower(): value == "on" for key, value in found.items()}


# -- one port --------------------------------------------------------------------------------------------------------


class Port:
    """A network port: its two trees in the kernel's file systems and the tool that its DCB settings go through."""

    def __init__(self, name, policy):
        """Find the port's RDMA device and the tool; reads no setting yet."""
        self.name, self.policy = name, policy
        self.sysfs = Path(policy.get("sysfs_root", "/sys"))
        self.configfs = Path(policy.get("configfs_root", "/sys/kernel/config"))
        self.net = self.sysfs / "class/net" / name
        self.device, self.device_port = self._rdma_device()
        self.tool = "mlnx_qos" if shutil.which("mlnx_qos") else "dcb"
        self.missing = []

    def _rdma_device(self):
        """The RDMA device and its port behind the network port, ("", "1") without one."""
        for ndev in sorted(self.sysfs.glob("class/infiniband/*/ports/*/gid_attrs/ndevs/*")):
            if word(ndev) == self.name:
                return ndev.parts[-6], ndev.parts[-4]
        count = word(self.net / "dev_port") or "0"  # of one function with several ports: from 0
        for path in sorted((self.net / "device/infiniband").glob("*")):
            port = str(int(count) + 1) if count.isdigit() else "1"
            return path.name, port if (self.sysfs / "class/infiniband" / path.name / "ports" / port).is_dir() else "1"
        return "", "1"

    def read(self):
        """All that the policy speaks of, as the port has it; None where this port or kernel hasn't that setting."""
        code, out, complaint = run("ip", "-j", "link", "show", "dev", self.name)
        if code:
            raise Failed(f"{self.name}: {complaint}")
        now = {"mtu": json.loads(out)[0]["mtu"], **self.read_dcb()}
        code, out, complaint = run("ethtool", "-a", self.name)
        now["pause"] = parse_pause(out) if code == 0 else None
        if code:
            self.missing.append(f"global pause can't be read ({complaint})")
        now["ecn"] = None
        if (self.net / "ecn/roce_np").is_dir():
            paths = [
                self.net / f"ecn/{end}/enable/{prio}" for end in ("roce_np", "roce_rp") for prio in self.policy["pfc"]
            ]
            now["ecn"] = all(word(path) == "1" for path in paths)
        else:
            self.missing.append("no DCQCN files of the driver, so that the firmware's defaults hold")
        now["cnp_dscp"] = number(word(self.net / "ecn/roce_np/cnp_dscp"))
        now["cnp_priority"] = number(word(self.net / "ecn/roce_np/cnp_802p_prio"))
        with self.cm_port() as folder:
            now["roce_mode"] = word(folder / "default_roce_mode") if folder else None
            now["tos"] = number(word(folder / "default_roce_tos")) if folder else None
        if now["tos"] is None:
            self.missing.append("no RDMA-CM defaults in configfs, so that programs must set the type of service")
        text = word(self._traffic_class_path())
        # The driver prints nothing until a class was set: then it is each program's own.
        now["traffic_class"] = None if text is None else number(text.rpartition("=")[2]) or 0
        if text is None:
            self.missing.append("no tc/traffic_class of the driver, so that programs must set the traffic class")
        return now

    def read_dcb(self):
        """The part that dcb or mlnx_qos knows; all None where the device has no DCB."""
        nothing = dict.fromkeys(("trust", "dscp_prio", "pfc", "pfc_delay", "ets"))
        if self.tool == "mlnx_qos":
            code, out, complaint = run("mlnx_qos", "-i", self.name)
            if code == 0:
                try:
                    return self._said(parse_mlnx_qos(out))
                except ValueError:
                    if not shutil.which("dcb"):
                        raise
                    self.tool = "dcb"  # that printed what nobody understands: the kernel's own tool is asked
        if self.tool == "dcb":
            texts = []
            for part in ("pfc", "ets", "app"):
                code, out, complaint = run("dcb", "-j", part, "show", "dev", self.name)
                if code and part == "pfc":
                    break
                texts.append("" if code else out)
            else:
                return self._said(parse_dcb(*texts))
        self.missing.insert(0, f"the device of {self.name} has no DCB ({self.tool}: {complaint})")
        return nothing

    def _said(self, found):
        """A reading, after what it lacks was written down."""
        absent = {"pfc": "priority flow control", "trust": "what the port trusts", "ets": "the traffic classes"}
        for key, words in reversed(absent.items()):
            if found[key] is None:
                self.missing.insert(0, f"{self.tool} does not tell {words} of {self.name}")
        return found

    @contextmanager
    def cm_port(self):
        """configfs's folder of the RDMA device's port, None without; a folder made for reading goes again."""
        root = self.configfs / "rdma_cm"
        if not self.device or not root.is_dir():
            yield None
            return
        made = not (root / self.device).is_dir()
        if made:
            (root / self.device).mkdir()
        try:
            folder = root / self.device / "ports" / self.device_port
            yield folder if folder.is_dir() else None
        finally:
            if made:
                (root / self.device).rmdir()

    def _traffic_class_path(self):
        return self.sysfs / "class/infiniband" / (self.device or "none") / "tc" / self.device_port / "traffic_class"

    def wanted(self, now):
        """The part of the policy that this port can have; empty where there is none."""
        keys = WANTED
        if now["pfc"] is None:
            keys = (*MARKING, "mtu") if any(now[key] is not None for key in MARKING) else ()
        return {key: self.policy[key] for key in keys if self.policy.get(key) is not None}

    def differences(self, now, wanted):
        """[{what, is, wanted}] between a reading and a state; what can't be read can't differ."""
        off = []
        for key, value in wanted.items():
            have = now.get(key)
            if key == "dscp_prio" and have is not None:
                have = {dscp: have.get(dscp) for dscp in value} if now["trust"] == "dscp" else {}
            if key == "ets" and have is not None and value is not None:
                have, value = in_order(have), in_order(value)
            if have is not None and value is not None and have != value:
                off.append({"what": key, "is": now.get(key) if key == "ets" else have, "wanted": wanted[key]})
        return off

    def report(self):
        """What `show` and `check` say of the port."""
        now = self.read()
        drift = self.differences(now, self.wanted(now))
        verdict, reason = self.verdict(now, drift)
        return {
            "interface": self.name,
            "tool": self.tool,
            "tool_version": " ".join(run(self.tool, "-V" if self.tool == "dcb" else "--version")[1].split()),
            "rdma_device": self.device,
            "now": now,
            "drift": drift,
            "missing": self.missing,
            "applies": bool(self.wanted(now)),
            "lossless": verdict,
            "reason": reason,
        }

    def verdict(self, now, drift):
        """Whether this end is lossless: True, False, or None where it can't be known; and why."""
        if now["pfc"] is None:
            return False, self.missing[0]
        needed = [d for d in drift if d["what"] in ("trust", "dscp_prio", "pfc", "pause", "ets")]
        if needed:
            return False, "; ".join(f"{d['what']} is {json.dumps(d['is'])}" for d in needed)
        unread = [key for key in ("trust", "ets") if now[key] is None]
        if unread:
            return None, self.missing[0]
        if now["pause"] is None:
            return None, "whether global pause is off can't be read"
        return True, "this end only: the switch port must agree"

    # -- writing ---------------------------------------------------------------------------------------------------

    def write(self, now, wanted):
        """Write what differs; returns what was written."""
        off = self.differences(now, wanted)
        for item in off:
            key, value = item["what"], item["wanted"]
            if key == "mtu":
                continue  # the fabric role's; reported as drift, never fought over
            if key in ("trust", "dscp_prio", "pfc", "ets"):
                getattr(self, f"_{self.tool}_{key}")(now, value, wanted)
            elif key == "pause":
                states = [text for side in ("rx", "tx") for text in (side, "on" if value[side] else "off")]
                must("ethtool", "-A", self.name, *states)
            else:
                self._write_file(key, value)
        return [item for item in off if item["what"] != "mtu"]

    def _write_file(self, key, value):
        ecn = self.net / "ecn"
        if key == "ecn":
            for end in ("roce_np", "roce_rp"):
                for prio in self.policy["pfc"]:
                    put(ecn / end / "enable" / str(prio), "1" if value else "0")
        elif key == "cnp_dscp":
            put(ecn / "roce_np/cnp_dscp", str(value))
        elif key == "cnp_priority":
            put(ecn / "roce_np/cnp_802p_prio", str(value))
        elif key == "traffic_class":
            put(self._traffic_class_path(), str(value))
        else:
            with self.cm_port() as folder:
                put(folder / f"default_roce_{key.removeprefix('roce_')}", str(value))

    def _dcb_trust(self, now, value, wanted):
        """dcb has no switch for it: the entries of the DSCP map are the switch. PCP: take every entry away."""
        if value == "pcp":
            entries = [f"{dscp}:{prio}" for dscp, prio in now["dscp_prio"].items()]
            must("dcb", "app", "del", "dev", self.name, "dscp-prio", *entries)

    def _dcb_dscp_prio(self, now, value, wanted):
        entries = [f"{dscp}:{prio}" for dscp, prio in value.items()]
        must("dcb", "app", "replace", "dev", self.name, "dscp-prio", *entries)

    def _dcb_pfc(self, now, value, wanted):
        must("dcb", "pfc", "set", "dev", self.name, "prio-pfc", "all:off", *[f"{prio}:on" for prio in value])

    def _dcb_ets(self, now, value, wanted):
        tsa, shares, prio_tc = spread(value)
        parts = {"tc-tsa": tsa, "tc-bw": shares, "prio-tc": prio_tc}
        words = [text for name, values in parts.items() for text in (name, *[f"{i}:{v}" for i, v in enumerate(values)])]
        must("dcb", "ets", "set", "dev", self.name, *words)

    def _mlnx_qos_trust(self, now, value, wanted):
        must("mlnx_qos", "-i", self.name, "--trust", value)

    def _mlnx_qos_dscp_prio(self, now, value, wanted):
        changes = [text for dscp, prio in value.items() for text in ("--dscp2prio", f"set,{dscp},{prio}")]
        must("mlnx_qos", "-i", self.name, *changes)

    def _mlnx_qos_pfc(self, now, value, wanted):
        flags = ",".join("1" if prio in value else "0" for prio in PRIORITIES)
        # Without the length mlnx_qos writes 0 and so shrinks the headroom of the lossless priority.
        must("mlnx_qos", "-i", self.name, "--pfc", flags, "--cable_len", str(now["pfc_delay"]))

    def _mlnx_qos_ets(self, now, value, wanted):
        tsa, shares, prio_tc = (",".join(str(item) for item in part) for part in spread(value))
        must("mlnx_qos", "-i", self.name, "--prio_tc", prio_tc, "--tsa", tsa, "--tcbw", shares)


WANTED = ("trust", "dscp_prio", "pfc", "ets", "pause", *SCALARS, "mtu")


def spread(ets):
    """Algorithm and share of all eight traffic classes, and the class of each priority. A class that no priority uses
    takes the algorithm of the first one: mixed in, "vendor" and "ets" exclude each other in some drivers."""
    first = next(iter(ets["tsa"].values()))
    tsa = [ets["tsa"].get(str(tc), first) for tc in PRIORITIES]
    return tsa, [ets["bandwidth_percent"].get(str(tc), 0) for tc in PRIORITIES], ets["prio_tc"]


def number(text):
    """The integer in a file's text, None for anything else."""
    return int(text) if text is not None and re.fullmatch(r"\s*\d+\s*", text) else None


def put(path, text):
    """Write one kernel file."""
    try:
        path.write_text(text + "\n", encoding="ascii")
    except OSError as error:
        raise Failed(f"{path}: {error.strerror}") from error


def keep(kept, now):
    """Write down what was there, whole or not at all: half of it would be neither put back nor written again."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    new = kept.with_suffix(".new")
    with new.open("w", encoding="ascii") as file:
        file.write(json.dumps(now, indent=2, sort_keys=True) + "\n")
        file.flush()
        os.fsync(file.fileno())
    new.replace(kept)


def apply(port):
    """Bring the port to the policy; keeps the first reading for `restore`."""
    now = port.read()
    wanted = port.wanted(now)
    if not wanted:
        return 4, [f"{port.name}: not applicable: {port.missing[0]}"]
    kept = BEFORE / f"{port.name}.json"
    if not kept.is_file():
        keep(kept, now)
    written = port.write(now, wanted)
    left = [item for item in port.differences(port.read(), wanted) if item["what"] != "mtu"]
    lines = [f"{port.name}: {i['what']}: {json.dumps(i['is'])} -> {json.dumps(i['wanted'])}" for i in written]
    if left:
        raise Failed(f"{port.name}: written, but still {json.dumps(left)}: does firmware or another tool own DCB?")
    if now["pfc"] is None:
        lines.append(f"{port.name}: only the marking applies: {port.missing[0]}")
    return 0, lines or [f"{port.name}: as wanted"]


def restore(port):
    """Put back the reading that the first apply kept; without one nothing was ever written."""
    kept = BEFORE / f"{port.name}.json"
    if not kept.is_file():
        return 0, [f"{port.name}: nothing to put back"]
    if not (Path("/sys/class/net") / port.name).exists():
        kept.unlink()
        return 0, [f"{port.name}: the port is gone, its settings with it"]
    before, now = json.loads(kept.read_text(encoding="ascii")), port.read()
    wanted = {key: before[key] for key in WANTED if before.get(key) is not None and key != "mtu"}
    if before.get("trust") == "pcp":
        wanted.pop("dscp_prio", None)  # goes with the trust
    foreign = {dscp: prio for dscp, prio in (now["dscp_prio"] or {}).items() if dscp not in (before["dscp_prio"] or {})}
    if port.tool == "dcb" and "dscp_prio" in wanted and foreign:
        must("dcb", "app", "del", "dev", port.name, "dscp-prio", *[f"{key}:{prio}" for key, prio in foreign.items()])
    written = port.write(now, wanted)
    kept.unlink()
    return 0, [f"{port.name}: put back {item['what']}: {json.dumps(item['wanted'])}" for item in written]


def main():
    """Do what the command line says; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["apply", "check", "show", "restore"])
    parser.add_argument("interface", nargs="+")
    parser.add_argument("--json", action="store_true", help="print one JSON document for all ports")
    parser.add_argument("--policy", help=f"the policy as JSON text (default: the file {POLICY})")
    args = parser.parse_args()
    os.environ.update(LC_ALL="C", PATH=os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin")
    code, documents, lines = 0, {}, []
    try:
        policy = json.loads(args.policy if args.policy else POLICY.read_text(encoding="utf-8"))
        for name in args.interface:
            port = Port(name, policy)
            if args.command in ("apply", "restore"):
                done, said = (apply if args.command == "apply" else restore)(port)
                code, lines = max(code, done), lines + said
            else:
                found = port.report()
                documents[name] = found
                if args.command == "check" and found["drift"]:
                    code = 3
                lines += [f"{name}: lossless: {found['lossless']} ({found['reason']})"]
                lines += [
                    f"{name}: {d['what']} is {json.dumps(d['is'])}, wanted {json.dumps(d['wanted'])}"
                    for d in found["drift"]
                ]
    except (Failed, OSError, ValueError, KeyError) as error:
        print(f"elastic-ai-roce: {error}", file=sys.stderr)
        return 1
    print(json.dumps(documents, sort_keys=True) if args.json else "\n".join(lines))
    return code


if __name__ == "__main__":
    sys.exit(main())
