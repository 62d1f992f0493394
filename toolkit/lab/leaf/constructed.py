"""The running configuration of a lab's switch, constructed by us after Enterprise SONiC's public command reference.

No switch was at hand. It is written here by hand, not by `toolkit switch render`, so that the two are independent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

Block = list[str]
"""The lines of a port, in the order in which the switch prints them."""
Spoil = Callable[[Block], Block]

_HEAD = """\
! constructed: an emulated switch of a lab
!
hostname {name}
!
interface-naming standard
!
qos wred-policy ROCE
 green minimum-threshold 2048 maximum-threshold 12480 drop-probability 15
 ecn green
!
qos scheduler-policy ROCE
 !
 queue 0
  type dwrr
  weight 50
 !
 queue 3
  type dwrr
  weight 50
 !
 queue 6
  type strict
!
qos scheduler-policy ROCE-SHARED
 !
 queue 0
  type dwrr
  weight 50
 !
 queue 3
  type dwrr
  weight 40
 !
 queue 6
  type dwrr
  weight 10
!
qos map dscp-tc ROCE
 dscp 0-23,25,27-47,49-63 traffic-class 0
 dscp 24,26 traffic-class 3
 dscp 48 traffic-class 6
!
qos map dscp-tc STORAGE
 dscp 0-23,25,27-47,49-63 traffic-class 0
 dscp 24 traffic-class 3
 dscp 48 traffic-class 6
!
qos map tc-queue ROCE
 traffic-class 0 queue 0
 traffic-class 3 queue 3
 traffic-class 6 queue 6
!
qos map tc-pg ROCE
 traffic-class 3 priority-group 3
 traffic-class 0-2,4-7 priority-group 7
!
qos map pfc-priority-queue ROCE
 pfc-priority 3 queue 3
 pfc-priority 4 queue 4
!
qos map pfc-priority-pg ROCE
 pfc-priority 3 pg 3
 pfc-priority 4 pg 4
!
"""
_PORT = """\
interface {port}
 description "{about}"
 mtu 9216
 speed 400000
 fec RS
 unreliable-los auto
 no shutdown
 queue 3 wred-policy ROCE
 scheduler-policy ROCE
 qos-map dscp-tc ROCE
 qos-map tc-queue ROCE
 qos-map tc-pg ROCE
 qos-map pfc-priority-queue ROCE
 qos-map pfc-priority-pg ROCE
 priority-flow-control priority 3
 priority-flow-control watchdog action drop
!
"""


def configuration(name: str, ports: Mapping[str, str], spoiled: Mapping[str, Spoil]) -> str:
    """What `show running-configuration` prints. ports: port -> what its description is; spoiled: port -> its fault."""
    text = _HEAD.format(name=name)
    for port, about in ports.items():
        lines = _PORT.format(port=port, about=about).splitlines()
        text += "".join(f"{line}\n" for line in (spoiled[port](lines) if port in spoiled else lines))
    return text
