#!/usr/bin/python3
"""Stand-in for dcb, mlnx_qos and ethtool -a/-A over a JSON file, for nodes without a card that has DCB.

What it is called decides what it does. It refuses what the real tools refuse (bandwidths that don't sum to 100, trust
and map in one mlnx_qos call) and forgets what they forget (mlnx_qos --pfc without a cable length).
The file: {"IF": {"dscp": {"26": 3}, "pfc": [3], "delay": 7, "tsa": [...], "bw": [...], "prio_tc": [...],
"pause": {"rx": true, "tx": true}}}. An interface that isn't in it has no DCB.
"""

from __future__ import annotations

import copy
import json
import os
import sys
from pathlib import Path

STATE = Path(os.environ.get("ROCE_STAND_IN_STATE", "/var/lib/roce-stand-in.json"))
FRESH = {
    "dscp": {},
    "pfc": [],
    "delay": 7,
    "tsa": ["vendor"] * 8,
    "bw": [100] * 8,
    "prio_tc": [1, 0, 2, 3, 4, 5, 6, 7],
    "pause": {"rx": True, "tx": True},
}


def stop(text: str) -> None:
    sys.exit(text)


def set_ets(port: dict, tsa: list[str], bandwidth: list[int], prio_tc: list[int]) -> None:
    total = sum(bandwidth)
    if total != 100 and not (total == 0 and "ets" not in tsa):
        stop(f"Bandwidth percentages in tc-bw sum to {total}%, expected {100 if 'ets' in tsa else 0}%")
    # As mlx5 reports it: a class that is not ETS has all of the line.
    port["bw"] = [share if kind == "ets" else 100 for share, kind in zip(bandwidth, tsa, strict=True)]
    port["tsa"], port["prio_tc"] = tsa, prio_tc


def dcb(port: dict, words: list[str]) -> str:
    show = words[0] == "-j"
    part, action, keyword, _, *rest = words[1:] if show else words
    if keyword != "dev" or (show and action != "show"):
        stop(f'What is "{keyword}"?')
    if part == "pfc":
        if show:
            flags = [prio in port["pfc"] for prio in range(8)]
            return json.dumps({"pfc_cap": 8, "macsec_bypass": False, "delay": port["delay"], "prio_pfc": flags})
        for pair in rest[1:]:
            prio, state = pair.split(":")
            chosen = range(8) if prio == "all" else [int(prio)]
            port["pfc"] = sorted({*port["pfc"], *chosen} if state == "on" else {*port["pfc"]} - {*chosen})
    elif part == "ets":
        if show:
            return json.dumps({"tc_bw": port["bw"], "tc_tsa": port["tsa"], "prio_tc": port["prio_tc"]})
        new = {"tc-tsa": list(port["tsa"]), "tc-bw": list(port["bw"]), "prio-tc": list(port["prio_tc"])}
        name = ""
        for text in rest:
            if ":" not in text:
                name = text
                continue
            key, value = text.split(":")
            for index in range(8) if key == "all" else [int(key)]:
                new[name][index] = value if name == "tc-tsa" else int(value)
        set_ets(port, new["tc-tsa"], new["tc-bw"], new["prio-tc"])
    elif part == "app":
        if show:
            pairs = [[int(dscp), prio] for dscp, prio in sorted(port["dscp"].items(), key=lambda e: int(e[0]))]
            return json.dumps({"dscp_prio": pairs} if pairs else {})
        for pair in rest[1:]:
            dscp, prio = pair.split(":")
            if action == "del":
                if port["dscp"].get(dscp) != int(prio):
                    stop("Attribute write: No such file or directory")
                del port["dscp"][dscp]
            else:
                port["dscp"][dscp] = int(prio)
    return ""


def mlnx_qos(port: dict, words: list[str]) -> str:
    options = dict(zip(words[::2], words[1::2], strict=True))
    if "--trust" in options and "--dscp2prio" in options:
        stop("trust and dscp2prio commands cannot be used at the same time.")
    if "--trust" in options:
        dscp = options["--trust"] == "dscp"
        port["dscp"] = (port["dscp"] or {str(d): d // 8 for d in range(64)}) if dscp else {}
    for key, value in zip(words[::2], words[1::2], strict=True):
        if key == "--dscp2prio":
            _, code, prio = value.split(",")
            port["dscp"][code] = int(prio)
    if "--pfc" in options:
        port["pfc"] = [prio for prio, on in enumerate(options["--pfc"].split(",")) if on == "1"]
        port["delay"] = int(options.get("--cable_len", 0))
    if "--tsa" in options:
        shares, classes = ([int(v) for v in options[key].split(",")] for key in ("--tcbw", "--prio_tc"))
        set_ets(port, options["--tsa"].split(","), shares, classes)
    lines = ["DCBX mode: OS controlled", f"Priority trust state: {'dscp' if port['dscp'] else 'pcp'}"]
    for prio in range(8) if port["dscp"] else []:
        codes = sorted(int(dscp) for dscp, value in port["dscp"].items() if value == prio)
        lines += [f"\tprio:{prio} dscp:" + "".join(f"{code:02d}," for code in codes)] if codes else []
    lines += [f"Cable len: {port['delay']}", "PFC configuration:", "\tpriority    0   1   2   3   4   5   6   7"]
    lines += ["\tenabled     " + "".join(f"{int(prio in port['pfc'])}   " for prio in range(8))]
    for tc in sorted(set(port["prio_tc"])):
        share = f", bw: {port['bw'][tc]}%" if port["tsa"][tc] == "ets" else ""
        lines += [f"tc: {tc} ratelimit: unlimited, tsa: {port['tsa'][tc]}{share}"]
        lines += [f"\t priority:  {prio}" for prio in range(8) if port["prio_tc"][prio] == tc]
    return "\n".join(lines)


def ethtool(port: dict, words: list[str]) -> str:
    if words[0] == "-A":
        port["pause"] |= {side: state == "on" for side, state in zip(words[2::2], words[3::2], strict=True)}
        return ""
    sides = [f"{side.upper()}:\t\t{'on' if on else 'off'}" for side, on in port["pause"].items()]
    return "\n".join([f"Pause parameters for {words[1]}:", "Autonegotiate:\toff", *sides])


def main() -> None:
    name, words = Path(sys.argv[0]).name, sys.argv[1:]
    if words in (["-V"], ["--version"]):
        print(f"{name} utility, stand-in")
        return
    state = json.loads(STATE.read_text()) if STATE.is_file() else {}
    interface = next((w for w in words if w in state), "")
    if not interface:
        stop("Attribute read: Operation not supported")
    port = copy.deepcopy({**FRESH, **state[interface]})
    tail = words[2:] if name == "mlnx_qos" else words
    out = {"dcb": dcb, "mlnx_qos": mlnx_qos, "ethtool": ethtool}[name](port, tail)
    if out:
        print(out)
    if port != state[interface]:
        STATE.write_text(json.dumps({**state, interface: port}, indent=2))


if __name__ == "__main__":
    main()
