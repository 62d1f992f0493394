#!/usr/bin/python3
"""Check a role's variables against its argument specification; done by the action of this name on the controller."""

DOCUMENTATION = r"""
module: role_arguments
short_description: Check a role's variables against its argument specification
version_added: 0.1.0
description:
  - First task of a role's C(tasks/main.yml). What C(meta/argument_specs.yml) states for C(main) is checked, as Ansible
    does by itself before a role, but under the role's own tags and not under the tag C(always).
  - It runs on the controller and changes nothing.
author: Elastic AI Toolkit
"""
EXAMPLES = r"""
- name: Check the role's variables
  elastic_ai.toolkit.role_arguments:
"""
RETURN = r"""
argument_errors: {description: what is wrong, one sentence each, returned: failure, type: list, elements: str}
"""
