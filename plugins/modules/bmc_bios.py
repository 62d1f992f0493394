#!/usr/bin/python3
"""What bmc_bios is, for ansible-doc; plugins/action/bmc_bios.py does it on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: bmc_bios
short_description: Set BIOS attributes by a server's BMC
version_added: 0.1.0
description:
  - Runs on the controller, over Redfish and verified TLS. The host variable C(bmc) names the BMC; its password, from a
    vault or the environment's C(ELASTIC_AI_BMC_PASSWORD), is no argument and in no result.
  - Values are compared with the BMC's attribute registry before anything is sent. They become pending values and a job,
    which the next start of the host carries out. This module starts no host.
options:
  state:
    description: C(absent) puts the profile back that was exported before the first change.
    type: str
    choices: [present, absent]
    default: present
  settled: {description: wait for the jobs after a start of the host and read back, type: bool, default: false}
  attributes: {description: attributes and values that the BIOS must have, type: dict, default: {}}
  gpu_node: {description: whether the values for GPU nodes are wanted too, type: bool, default: false}
  profile: {description: file on the controller for the profile before any change, type: path, required: true}
  timeout_s: {description: how long all of it may take in seconds, type: int, required: true}
author: Elastic AI Toolkit
"""
EXAMPLES = r"""
- name: Set the BIOS
  elastic_ai.toolkit.bmc_bios:
    attributes: {LogicalProc: Disabled}
    profile: "{{ inventory_dir }}/.bios/{{ inventory_hostname }}.json"
    timeout_s: 900
"""
RETURN = r"""
changes: {description: "what differs, NAME: OLD to NEW", returned: success, type: list, elements: str}
waiting: {description: whether the next start of the host changes the BIOS, returned: success, type: bool}
postponed: {description: attributes that need one more start, returned: success, type: list, elements: str}
notes: {description: wishes for GPU nodes that are left out, and why, returned: success, type: list, elements: str}
profile: {description: the file with the exported profile, returned: success, type: str}
"""
