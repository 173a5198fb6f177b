#!/usr/bin/env bash
# Makes volhold_VERSION_amd64.deb and volhold-VERSION-1.x86_64.rpm, in `packages` below the build folder.
#
#   packaging/build.sh [--as VERSION] [--without-aws]
#
#   --as            another version in the packages' heads, for tests of upgrades
#   --without-aws   for tests only: what is shipped has it
#
# One binary serves all: it is linked by zig against glibc 2.31 (Debian 11) and against libblkid's old symbol versions
# (libblkid/), and packaging/symbols.sh fails where it asks for anything newer. The same source gives the same bytes: times
# are those of the last commit, and no path of this machine is left in the binary.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
triple=x86_64-unknown-linux-gnu
glibc=2.31

[ "$(uname -m)" = x86_64 ] || { echo "packages are made on x86_64 only, so far" >&2; exit 1; }
as=
features=()
while [ $# -gt 0 ]; do
    case $1 in
    --as) as=${2:?--as wants a version}; shift ;;
    --without-aws) features=(--no-default-features) ;;
    *) echo "unknown option $1" >&2; exit 2 ;;
    esac
    shift
done

target=${CARGO_TARGET_DIR:-$root/target}
export CARGO_TARGET_DIR=$target
found=$(packaging/tools.sh)
eval "$found"

export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -c "safe.directory=$PWD" log -1 --format=%ct)}
export LC_ALL=C.UTF-8 TZ=UTC
umask 022

# The linker's view of libblkid.
work=$target/packaging
mkdir -p "$work/libblkid"
export ZIG_GLOBAL_CACHE_DIR=$work/zig ZIG_LOCAL_CACHE_DIR=$work/zig
"$zig" cc -target "x86_64-linux-gnu.$glibc" -shared -fPIC -Wl,-soname,libblkid.so.1 \
    "-Wl,--version-script,packaging/libblkid/libblkid.map" -o "$work/libblkid/libblkid.so" packaging/libblkid/libblkid.c

# Later remappings win, so the folder that may hold the others comes first.
registry=${CARGO_HOME:-$HOME/.cargo}
export RUSTFLAGS="--remap-path-prefix=$registry=/cargo --remap-path-prefix=$root=/volhold --remap-path-prefix=$target=/target -L native=$work/libblkid"
cargo zigbuild --locked --release "${features[@]}" --target "$triple.$glibc"
binary=$target/$triple/release/volhold
packaging/symbols.sh "$binary"

# What is made from the binary and from the crates in it.
stage=$target/$triple/release/stage
rm -rf "$stage"
mkdir -p "$stage"
for page in $("$binary" reference pages); do
    "$binary" reference "$page" | gzip -9n >"$stage/$page.gz"
done
gzip -9n <packaging/common/volhold-bypass.8 >"$stage/volhold-bypass.8.gz"
for shell in bash zsh fish; do "$binary" reference "$shell" >"$stage/volhold.$shell"; done
python3 packaging/inventory.py "$triple" "$stage"
cat packaging/deb/copyright.head "$stage/licences.txt" >"$stage/copyright"
gzip -9n <CHANGELOG.md >"$stage/CHANGELOG.md.gz"
version=${as:-$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)}
printf 'volhold (%s) unstable; urgency=medium\n\n  * What changed is told in CHANGELOG.md.gz, beside this file.\n\n -- %s  %s\n' \
    "$version" "$(sed -n 's/^maintainer = "\(.*\)"/\1/p' Cargo.toml)" "$(date -R -d "@$SOURCE_DATE_EPOCH")" |
    gzip -9n >"$stage/changelog.gz"
find "$stage" -exec touch -d "@$SOURCE_DATE_EPOCH" {} +
touch -d "@$SOURCE_DATE_EPOCH" "$binary"

packages=$target/packages
mkdir -p "$packages"
cargo deb --quiet --no-build --no-strip --target $triple ${as:+--deb-version "$as"} --output "$packages/"
cargo generate-rpm --target $triple ${as:+--set-metadata "version = \"$as\""} --output "$packages/"
(cd "$packages" && sha256sum -- *.deb *.rpm)
