# shellcheck shell=bash
# Sourced by bin/rehearse and bin/test: says what it is about to do, installs what is missing, makes .venv. Safe to repeat.

say() { printf '\n== %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 2; }

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT" || exit 2
PYTHON=${PYTHON:-python3}
# Containers often set this; here it would have each of some hundred starts of Python compile all that it imports.
unset PYTHONDONTWRITEBYTECODE
as_root() { if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi; }

# patiently WHAT COMMAND...: runs the command and says every 15 seconds what it does and for how long.
patiently() {
    local what=$1 since=$SECONDS child waiting=0
    shift
    "$@" &
    child=$!
    while kill -0 "$child" 2>/dev/null; do
        sleep 0.5
        waiting=$((waiting + 1))
        [ $((waiting % 30)) -ne 0 ] || printf '%s, %ds\n' "$what" $((SECONDS - since)) >&2
    done
    wait "$child"
}

# os_packages NAME...: installs the packages that are missing.
os_packages() {
    command -v apt-get >/dev/null || die "the lab needs a Debian or Ubuntu machine (no apt-get here)"
    local missing=() name
    for name in "$@"; do
        dpkg-query -W -f '${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || missing+=("$name")
    done
    [ "${#missing[@]}" -eq 0 ] && return
    say "installing packages: ${missing[*]}"
    [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null || die "run as root, or install sudo"
    patiently "reading the package sources" as_root apt-get update -qq || die "apt-get update failed: see the lines above"
    patiently "installing packages" as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null \
        || die "apt-get install failed: see the lines above"
}

# environment LOCKFILE: .venv with exactly what the lock names, and this project in it.
environment() {
    local lock=$1 stamp
    command -v "$PYTHON" >/dev/null || die "$PYTHON is not installed"
    "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || die "Python 3.10 or newer is needed"
    "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null || os_packages python3-venv
    stamp=$(cat "$lock" pyproject.toml | sha256sum | cut -d' ' -f1)
    if [ ! -f ".venv/.stamp-${lock##*/}" ] || [ "$(cat ".venv/.stamp-${lock##*/}")" != "$stamp" ]; then
        say "making the Python environment .venv from $lock"
        [ -x .venv/bin/python ] || "$PYTHON" -m venv .venv || die "could not make .venv"
        # Not compiled: a third of the time would go into modules of Ansible that nobody imports.
        patiently "installing the Python packages of $lock" \
            .venv/bin/python -m pip install -q --no-compile --require-hashes -r "$lock" || die "pip install failed: see the lines above"
        .venv/bin/python -m pip install -q --no-deps --no-build-isolation -e . || die "installing this project failed"
        echo "$stamp" >".venv/.stamp-${lock##*/}"
    fi
    export PATH="$ROOT/.venv/bin:$PATH"
}
LAB_PACKAGES=(gcc gnupg iproute2 iptables libc6-dev libibverbs-dev mmdebstrap openssh-client slirp4netns systemd-container util-linux)
# what the report as PDF needs: text layout, and fonts that it embeds
REPORT_PACKAGES=(fonts-dejavu-core fonts-liberation libharfbuzz-subset0 libpango-1.0-0 libpangoft2-1.0-0)
LAB_PACKAGES+=("${REPORT_PACKAGES[@]}")
export LAB_PACKAGES
