"""Samples as a file of node-exporter's textfile collector, again and again."""

import argparse
import signal
import sys
import time
from pathlib import Path


def escaped(value):
    """A label's value as the exposition format wants it."""
    return str(value).replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def exposition(helps, samples):
    """Text of samples (metric, labels, value). helps: what each metric means; one that is not in it is a mistake."""
    lines = []
    unknown = {name for name, _, _ in samples} - set(helps)
    if unknown:
        raise KeyError(", ".join(sorted(unknown)))
    for metric, words in helps.items():
        found = [(labels, value) for name, labels, value in samples if name == metric]
        lines += [f"# HELP {metric} {words}", f"# TYPE {metric} gauge"] if found else []
        for labels, value in found:
            inside = ",".join(f'{key}="{escaped(text)}"' for key, text in labels.items())
            lines.append(f"{metric}{{{inside}}} {float(value)!r}" if inside else f"{metric} {float(value)!r}")
    return "\n".join(lines) + "\n"


def write(path, text):
    """The whole file at once: node-exporter never reads half of it."""
    new = path.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    new.chmod(0o644)
    new.replace(path)


def run_command(about, helps, reading):
    """The command line of a program whose function `reading` gives (samples, what went wrong or None)."""
    parser = argparse.ArgumentParser(description=about.split("\n", 1)[0])
    parser.add_argument("--output", type=Path, required=True, help="file to write, in node-exporter's folder")
    parser.add_argument("--interval", type=float, default=15.0, help="seconds between two readings (15)")
    parser.add_argument("--once", action="store_true", help="one reading; exit status 1 where it fails")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    said = ""
    while True:
        samples, fault = reading()
        write(arguments.output, exposition(helps, samples))
        if fault != said:  # once, not every quarter of a minute
            print(f"{arguments.output.stem}: {fault or 'reads'}", file=sys.stderr, flush=True)
            said = fault
        if arguments.once:
            return int(fault is not None)
        time.sleep(arguments.interval)
