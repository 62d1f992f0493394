"""A directory on a lab's head: slapd with users and groups, and sssd that asks it, as sites have them."""

from __future__ import annotations

from tests.support.lease_lab import Lab, shell

PEOPLE = {"dora": 7101, "emil": 7102, "finn": 7103, "gina": 7104}
GROUPS = {"students": (7500, ("dora", "emil", "finn")), "staff-ldap": (7501, ("gina",))}
ADMIN = "-x -H ldap://127.0.0.1 -D cn=admin,dc=lab -w lab"
SSSD = """[sssd]
services = nss
domains = lab
[nss]
[domain/lab]
id_provider = ldap
auth_provider = none
access_provider = permit
ldap_uri = ldap://127.0.0.1
ldap_search_base = dc=lab
ignore_group_members = true
entry_cache_timeout = 5
offline_timeout = 5
ldap_network_timeout = 2
ldap_opt_timeout = 3
"""


def _person(name: str, uid: int) -> str:
    kinds = "objectClass: inetOrgPerson\nobjectClass: posixAccount\n"
    place = f"uidNumber: {uid}\ngidNumber: 7600\nhomeDirectory: /home/{name}\nloginShell: /bin/sh\n"
    return f"dn: uid={name},ou=people,dc=lab\n{kinds}uid: {name}\ncn: {name}\nsn: {name}\n{place}\n"


def _group(name: str, gid: int, members: tuple[str, ...]) -> str:
    said = "".join(f"memberUid: {one}\n" for one in members)
    return f"dn: cn={name},ou=groups,dc=lab\nobjectClass: posixGroup\ncn: {name}\ngidNumber: {gid}\n{said}\n"


def install(lab: Lab) -> None:
    """Both on the head; users of the same names and uids on the server, for whom jobs run there."""
    folders = "".join(
        f"dn: ou={one},dc=lab\nobjectClass: organizationalUnit\nou: {one}\n\n" for one in ("people", "groups")
    )
    tree = folders + "".join(_person(*one) for one in PEOPLE.items())
    tree += _group("users-ldap", 7600, ()) + "".join(_group(name, *of) for name, of in GROUPS.items())
    homes = "\n".join(f"install -d -o {uid} -g 7600 /home/{name}" for name, uid in PEOPLE.items())
    shell(
        lab,
        "head",
        f"""set -e; export DEBIAN_FRONTEND=noninteractive
        debconf-set-selections <<< $'slapd slapd/domain string lab\\nslapd shared/organization string lab
slapd slapd/password1 password lab\\nslapd slapd/password2 password lab'
        apt-get -q update; apt-get -qy install slapd ldap-utils sssd-ldap sssd-tools sssd-dbus libnss-sss
        ldapadd {ADMIN} <<'LDIF'
{tree}
LDIF
        install -m 0600 /dev/stdin /etc/sssd/sssd.conf <<'CONF'
{SSSD}
CONF
        systemctl restart sssd; {homes}
        systemctl stop elastic-ai-pool-sync.timer  # passes are the test's own
        getent passwd dora; getent group students""",
    )
    users = "\n".join(f"id {name} || useradd -u {uid} -g 7600 -M {name}" for name, uid in PEOPLE.items())
    shell(lab, "gpu1", f"set -e; getent group 7600 || groupadd -g 7600 users-ldap\n{users}")


def changed(lab: Lab, ldif: str) -> None:
    """By its administrator, and sssd's cache is expired, as docs/how-to/pool.md has it."""
    shell(lab, "head", f"set -e; ldapmodify {ADMIN} <<'LDIF'\n{ldif}\nLDIF\nsss_cache -E")


def membership(lab: Lab, verb: str, group: str, user: str) -> None:
    """verb: add or delete."""
    changed(lab, f"dn: cn={group},ou=groups,dc=lab\nchangetype: modify\n{verb}: memberUid\nmemberUid: {user}\n")


def deleted(lab: Lab, user: str) -> None:
    """The user's entry and memberships."""
    membership(lab, "delete", "students", user)
    changed(lab, f"dn: uid={user},ou=people,dc=lab\nchangetype: delete\n")


def away(lab: Lab) -> None:
    """The directory, after sssd was left with a part in its cache: the group, and none of its members."""
    emptied = "systemctl stop sssd; rm -f /var/lib/sss/db/cache_* /var/lib/sss/db/timestamps_* /var/lib/sss/mc/*"
    shell(lab, "head", f"set -e; {emptied}; systemctl start sssd; getent group students; systemctl stop slapd")


def here(lab: Lab) -> None:
    """The directory again, and sssd knows it."""
    knows = "getent passwd finn && sssctl domain-status lab --online | grep Online$"
    shell(lab, "head", f"systemctl start slapd; for _ in $(seq 90); do {knows} && break; sleep 1; done; id finn")
