"""The form of each answer of a command with --json, and of each document of a run: what docs/schema publishes.

An answer is made of what a command knows already; its form is declared here, so that a program can rely on it. Tests
hold real answers of the commands against these forms.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel

from toolkit.answer_forms import lab, lookup, measured, pool, site
from toolkit.answers import schema_of
from toolkit.inventory_record import InventoryRecord
from validation.campaign.model import Campaign
from validation.compare.model import Comparison
from validation.judging.accepted import AcceptedRates
from validation.model import Plan, Result, RunInfo, Topology, VerdictDoc
from validation.model.built import HowBuilt
from validation.run.other_rules import Rejudged
from validation.trend.model import Trend
from validation.verdict.addendum import Addendum

#: name of an answer -> its form
ANSWERS: dict[str, type[BaseModel]] = {
    "inventory-init": site.InventoryInit,
    "inventory-scan": site.InventoryScan,
    "deployment": site.Deployed,
    "check": site.Check,
    "node": site.NodeMoved,
    "upgrade": site.Upgraded,
    "incidents": site.Incidents,
    "backup": site.BackupMade,
    "rotate": site.Rotated,
    "status": site.Status,
    "restore": site.HeadRestored,
    "verdict": measured.Verdict,
    "validations": measured.Validations,
    "plans": measured.Plans,
    "outlines": measured.Outlines,
    "judged": measured.Judged,
    "comparison": measured.Compared,
    "trend": measured.Trended,
    "baseline": measured.Baseline,
    "narrowed": measured.Narrowed,
    "runs": measured.Runs,
    "report": measured.Reported,
    "campaign": measured.CampaignFiles,
    "traces": measured.Traces,
    "trace": measured.Trace,
    "signature": measured.Signature,
    "bundle": measured.Bundle,
    "verification": measured.Verification,
    "points": measured.Points,
    "sum": measured.Summed,
    "evidence": measured.Evidence,
    "sum-checked": measured.SumChecked,
    "point": measured.OnePoint,
    "points-updated": measured.PointsUpdated,
    "support": site.Support,
    "mirror-plan": site.MirrorPlan,
    "mirror": site.MirrorChecked,
    "gpus": pool.Gpus,
    "gpus-when": pool.GpusWhen,
    "gpus-limits": pool.GpusLimits,
    "pool-page": pool.PoolPage,
    "pool-check": pool.PoolCheck,
    "pool-joined": pool.PoolJoined,
    "switch-check": site.SwitchCheck,
    "calendar": pool.Calendar,
    "images": pool.Images,
    "lease": pool.Lease,
    "leases": pool.Leases,
    "static-lease": pool.StaticLease,
    "static-leases": pool.StaticLeases,
    "released-leases": pool.ReleasedLeases,
    "lease-env": pool.LeaseEnv,
    "fabrics": lookup.Fabrics,
    "fabric": lookup.OneFabric,
    "profiles": lookup.Profiles,
    "profile": lookup.OneProfile,
    "criteria": lookup.Criteria,
    "criterion": lookup.OneCriterion,
    "claims": lookup.Claims,
    "claim": lookup.OneClaim,
    "lab": lab.Lab,
    "lab-node": lab.LabJoined,
    "lab-needs": lab.LabNeeds,
    "lab-down": lab.LabDown,
    "lab-status": lab.LabStatus,
    "faults": lab.Faults,
    "lab-fault": lab.LabFault,
    "lab-drill": lab.LabDrill,
    "engine": lab.Engine,
    "engine-pack": lab.EnginePack,
}

#: command -> the answers that it can give with --json
BY_COMMAND: dict[str, tuple[str, ...]] = {
    "inventory init": ("inventory-init",),
    "inventory scan": ("inventory-scan",),
    "deploy": ("deployment",),
    "teardown": ("deployment",),
    "check": ("check",),
    "node add": ("node",),
    "node replace": ("node",),
    "node remove": ("node",),
    "upgrade": ("upgrade",),
    "rollback": ("upgrade",),
    "incidents": ("incidents",),
    "backup": ("backup",),
    "mirror plan": ("mirror-plan",),
    "mirror verify": ("mirror",),
    "rotate": ("rotate",),
    "status": ("status",),
    "restore": ("restore",),
    "validate": ("verdict", "validations", "plans", "outlines"),
    "judge": ("judged",),
    "compare": ("comparison",),
    "trend": ("trend",),
    "baseline": ("baseline",),
    "narrow": ("narrowed",),
    "runs": ("runs",),
    "report": ("report", "campaign", "traces", "trace"),
    "sign": ("signature",),
    "bundle": ("bundle",),
    "verify": ("verification",),
    "handover points": ("points",),
    "handover sum": ("sum",),
    "handover evidence": ("evidence",),
    "handover check-sum": ("sum-checked",),
    "handover open": ("point",),
    "handover close": ("point",),
    "handover update": ("points-updated",),
    "support": ("support",),
    "gpus": ("gpus", "gpus-when", "gpus-limits", "calendar"),
    "pool check": ("pool-check", "pool-joined"),
    "switch check": ("switch-check",),
    "images": ("images",),
    "lease request": ("lease", "static-lease"),
    "lease list": ("leases", "static-leases"),
    "lease show": ("lease",),
    "lease env": ("lease-env",),
    "lease extend": ("lease",),
    "lease release": ("released-leases",),
    "fabrics": ("fabrics",),
    "fabrics show": ("fabric",),
    "profiles": ("profiles",),
    "profiles list": ("profiles",),
    "profiles show": ("profile",),
    "criteria": ("criteria",),
    "criteria list": ("criteria",),
    "criteria show": ("criterion",),
    "claims": ("claims",),
    "claims list": ("claims",),
    "claims show": ("claim",),
    "lab up": ("lab", "lab-node"),
    "lab needs": ("lab-needs",),
    "lab down": ("lab-down",),
    "lab status": ("lab-status",),
    "lab fault list": ("faults",),
    "lab fault set": ("lab-fault",),
    "lab fault clear": ("lab-fault",),
    "lab drill": ("lab-drill",),
    "engine build": ("engine",),
    "engine pack": ("engine-pack",),
}

#: What no command prints: the page of the pool answers it.
BY_PAGE = ("pool-page",)

#: What these print is a program's own, on another machine, or help for people.
WITHOUT = (
    *("run", "logs", "attach", "ssh", "jupyter", "lab ssh", "help", "inventory cables", "switch render"),
    *("handover witness", "mirror build", "mirror serve"),
)

#: file of a run (or beside it) -> its form
DOCUMENTS: dict[str, type[BaseModel]] = {
    "run.json": RunInfo,
    "topology.json": Topology,
    "plan.json": Plan,
    "results.jsonl": Result,
    "verdict.json": VerdictDoc,
    "inventory.json": InventoryRecord,
    "built.json": HowBuilt,
    "accepted.json": AcceptedRates,
    "judged.json": Rejudged,
    "addendum.json": Addendum,
    "campaign.json": Campaign,
    "trend.json": Trend,
    "compare.json": Comparison,
}

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def answer_schema(name: str) -> dict[str, Any]:
    """The JSON Schema of an answer."""
    made = ANSWERS[name].model_json_schema(by_alias=True, mode="serialization")
    mine = {"schema": {"const": schema_of(name), "type": "string"}}
    properties = {**mine, **{key: one for key, one in made.pop("properties").items() if key != "schema"}}
    required = ["schema", *(key for key in made.pop("required", []) if key != "schema")]
    return _published({**made, "title": schema_of(name), "properties": properties, "required": required})


def document_schema(file: str) -> dict[str, Any]:
    """The JSON Schema of a document of a run; of results.jsonl of each line."""
    return _published({**DOCUMENTS[file].model_json_schema(by_alias=True, mode="validation"), "title": file})


def _published(schema: dict[str, Any]) -> dict[str, Any]:
    """With its dialect. Of kinds of facts the last one takes what the others take too, so that "one of" is "any of"."""
    made: dict[str, Any] = json.loads(json.dumps(schema).replace('"oneOf":', '"anyOf":'))
    return {"$schema": DIALECT, **made}


def table() -> str:
    """Which command gives which answer, and which document has which schema, for docs/reference/answers.md."""
    rows = ["| Command | Answers |", "|---|---|"]
    for command, names in BY_COMMAND.items():
        links = ", ".join(f"[`{schema_of(name)}`](../schema/answers/{name}-1.json)" for name in names)
        rows.append(f"| `toolkit {command} --json` | {links} |")
    rows += ["", "| Document of a run | Schema |", "|---|---|"]
    rows += [f"| `{file}` | [{file}](../schema/documents/{_stem(file)}.json) |" for file in DOCUMENTS]
    rows.append("| `report.json` | [report-2.json](../schema/report-2.json) |")
    return "\n".join(rows) + "\n"


def _stem(file: str) -> str:
    return file.partition(".")[0]


def files() -> dict[str, dict[str, Any]]:
    """File below docs/schema -> the schema in it."""
    answers = {f"answers/{name}-1.json": answer_schema(name) for name in ANSWERS}
    return answers | {f"documents/{_stem(file)}.json": document_schema(file) for file in DOCUMENTS}
