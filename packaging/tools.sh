#!/usr/bin/env bash
# What packages are made with, in fixed versions, below the user's cache folder: cargo-deb and cargo-generate-rpm (built once
# where they are missing), zig and cargo-zigbuild (from PyPI). Prints, for a shell to evaluate, how to reach them.
set -euo pipefail
deb=3.8.0
rpm=0.21.1
zig=0.15.2
zigbuild=0.24.1
tools="${XDG_CACHE_HOME:-$HOME/.cache}/volhold/tools"

# install CRATE VERSION [OPTIONS]
install() {
    local crate=$1 version=$2
    shift 2
    [ "$("$tools/bin/$crate" --version 2>/dev/null | grep -oE '[0-9]+(\.[0-9]+)+' | head -1)" != "$version" ] || return 0
    echo "building $crate $version (once, some minutes)" >&2
    CARGO_TARGET_DIR="$tools/target" CARGO_PROFILE_RELEASE_OPT_LEVEL=2 CARGO_PROFILE_RELEASE_LTO=off \
        CARGO_PROFILE_RELEASE_DEBUG=false \
        cargo install --quiet --locked --force --root "$tools" --version "$version" "$@" "$crate" >&2
    rm -rf "$tools/target"
}
install cargo-deb $deb --no-default-features
install cargo-generate-rpm $rpm

python="$tools/zig-$zig-$zigbuild"
if [ ! -x "$python/bin/cargo-zigbuild" ]; then
    echo "fetching zig $zig and cargo-zigbuild $zigbuild (once)" >&2
    rm -rf "$python" "$python.new"
    python3 -m venv "$python.new" >&2
    "$python.new/bin/python" -m pip --quiet --disable-pip-version-check install --only-binary :all: \
        "ziglang==$zig" "cargo-zigbuild==$zigbuild" >&2
    # The environment's scripts name its own folder: moved as a whole, and entered by its Python and not by them.
    mv "$python.new" "$python"
fi

printf 'export PATH=%q:%q:$PATH\n' "$tools/bin" "$python/bin"
printf 'zig=%q\n' "$(echo "$python"/lib/python3*/site-packages/ziglang/zig)"
printf 'export CARGO_ZIGBUILD_ZIG_PATH="$zig"\n'
