#!/usr/bin/env bash
# What volhold is built and tested with, from Debian's or Ubuntu's own packages.
#
#   tests/packages.sh          installs what is missing (as root)
#   tests/packages.sh check    only says what is missing; fails if anything is
#   tests/packages.sh for-packages [check]      also what volhold's own packages are made and tested with
#
# Debian's etcd-server and prometheus start services of their own when they are installed. Nobody asked for those: they are
# kept from starting while the packages are installed, and left disabled, so that they do not come back at the next boot.
set -euo pipefail

packages=(
    build-essential pkg-config libblkid-dev    # to build
    e2fsprogs xfsprogs util-linux mount gdisk  # what is examined, and what examines
    etcd-server etcd-client                    # a real etcd
    fuse3 python3-fuse                         # disks whose reads fail
    zstd tar procps                            # to unpack test data
    systemd-container debootstrap              # machines with a real systemd
    prometheus jsonnet                         # alert rules, metrics and the dashboard, as those who get them read them
    python3 python3-venv                       # the simulator of EC2, which comes from PyPI
)

if [ "${1:-}" = for-packages ]; then
    shift
    packages+=(
        rpm                                        # to make packages; zig comes from PyPI
        lintian rpmlint mandoc man-db              # to judge them
    )
fi

if ! command -v dpkg-query >/dev/null; then
    echo "This is neither Debian nor Ubuntu. Please install what these Debian packages hold: ${packages[*]}" >&2
    exit 1
fi

missing=()
for package in "${packages[@]}"; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "${1:-}" = check ]; then
    echo "missing packages: ${missing[*]}" >&2
    exit 1
fi
if [ "$(id -u)" != 0 ]; then
    echo "missing packages: ${missing[*]}" >&2
    echo "Installing them needs root: sudo apt-get install ${missing[*]}" >&2
    exit 1
fi

# invoke-rc.d asks this file before it starts a service for a package; 101 means no. Somebody's own file stays in force.
policy=/usr/sbin/policy-rc.d
ours=no
undo() { [ "$ours" = no ] || rm -f "$policy"; }
trap undo EXIT
if [ ! -e "$policy" ]; then
    ours=yes
    printf '#!/bin/sh\n# Put here by volhold while it installs packages for its tests.\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi

export DEBIAN_FRONTEND=noninteractive
echo "installing: ${missing[*]}"
apt-get -q update
apt-get -q install -y --no-install-recommends "${missing[@]}"
for package in "${missing[@]}"; do
    case $package in
        etcd-server) service=etcd.service ;;
        prometheus) service=prometheus.service ;;
        *) continue ;;
    esac
    if [ -d /run/systemd/system ]; then systemctl disable --now "$service" 2>/dev/null || true; fi
done
