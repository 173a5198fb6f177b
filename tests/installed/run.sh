#!/usr/bin/env bash
# The packages, judged: by what they ask of a system, by lintian and rpmlint, by running in a Debian 11 root, and by what
# becomes of a master on which they are installed, upgraded, downgraded, removed and purged. Root needed. That a second build
# gives the same bytes is shown by reproducible.sh. VOLHOLD_TEST_TIMES=2 goes through the machines twice. With --without-aws
# packages without what takes longest to compile are judged, for a run that has no time for it.
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ "$(id -u)" != 0 ]; then
    echo "installing packages needs root" >&2
    exit 1
fi
export PYTHONDONTWRITEBYTECODE=1
options=()
if [ "${1:-}" = --without-aws ]; then
    options=("$1")
    shift
fi
target=${CARGO_TARGET_DIR:-$PWD/target}
export CARGO_TARGET_DIR=$target
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -c "safe.directory=$PWD" log -1 --format=%ct)}
work=$(mktemp -d)
trap 'umount -R "$work"/*/proc 2>/dev/null || true; rm -rf "$work"' EXIT

step() {
    local begun=$SECONDS
    echo "--> $1"
    "${@:2}"
    echo "--> $1: $((SECONDS - begun)) s"
}

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
newer=$version.1

build() {
    rm -rf "$target/packages"
    packaging/build.sh "${options[@]}"
    packaging/build.sh "${options[@]}" --as "$newer" >/dev/null
}

# The binary first: what it was linked with must not be what it needs.
refuses_newer() {
    if packaging/symbols.sh "$(command -v ls)" >/dev/null 2>&1; then
        echo "packaging/symbols.sh has nothing against a binary of this system" >&2
        exit 1
    fi
}

judge() {
    local binary page
    for page in "$target"/x86_64-unknown-linux-gnu/release/stage/*.[578].gz; do
        page=$(basename "$page" .gz)
        zcat "$target/x86_64-unknown-linux-gnu/release/stage/$page.gz" >"$work/$page"
        # Lines may be long, a sentence may end in the middle of one: style, not mistakes.
        mandoc -T lint -W warning "$work/$page"
        lexgrog "$work/$page"
        [ -z "$(LC_ALL=C.UTF-8 man --warnings -l -Tutf8 -Z "$work/$page" 2>&1 >/dev/null | tee /dev/stderr)" ]
    done
    for binary in bash zsh fish; do
        command -v $binary >/dev/null || continue
        $binary -n "$target/x86_64-unknown-linux-gnu/release/stage/volhold.$binary"
    done
    lintian --fail-on error,warning,info --tag-display-limit 0 "$target"/packages/volhold_"$version"_*.deb
    rpmlint --config packaging/rpm/rpmlint.toml "$target"/packages/volhold-"$version"-*.rpm
}

# glibc 2.31, libblkid 2.36: the oldest system that is served.
in_debian_11() {
    local roots="${XDG_CACHE_HOME:-$HOME/.cache}/volhold/roots" root mirror
    root=$roots/bullseye-1
    if [ ! -d "$root" ]; then
        mkdir -p "$roots"
        rm -rf "$root.new"
        mirror=$(PYTHONPATH=tests/installed python3 -c 'import machine; print(machine.mirror())')
        debootstrap --variant=minbase bullseye "$root.new" "$mirror" >"$work/debootstrap.log" 2>&1 || {
            tail -20 "$work/debootstrap.log" >&2
            exit 1
        }
        mv "$root.new" "$root"
    fi
    mkdir -p "$work/layer" "$work/layer-work" "$work/eleven"
    unshare --mount --propagation private bash -eu -c '
        mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/layer,workdir=$2/layer-work" "$2/eleven"
        mount -t proc proc "$2/eleven/proc"
        cp "$3" "$2/eleven/root/volhold.deb"
        truncate -s 64M "$2/eleven/root/image"
        mkfs.ext4 -q -F -L told-by-blkid "$2/eleven/root/image"
        chroot "$2/eleven" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin sh -eu -c "
            dpkg -i /root/volhold.deb >/root/dpkg.log 2>&1 || { cat /root/dpkg.log; exit 1; }
            ldd --version | head -1
            volhold --version
            volhold config check
            volhold inspect /root/image -o json >/root/report || [ \$? = 0 ]
            grep -A2 libblkid /root/report; grep told-by-blkid /root/report
        "' bash "$root" "$work" "$(echo "$target"/packages/volhold_"$version"_*.deb)"
}

step "two versions" build
step "a binary of this system is too new" refuses_newer
step "lint" judge
step "Debian 11" in_debian_11
for _ in $(seq "${VOLHOLD_TEST_TIMES:-1}"); do
    step "machines" python3 tests/installed/scenarios.py "$target/packages" "$@"
done
