#!/usr/bin/env bash
# Licences, sources and duplicates of the dependencies, by cargo-deny, which is built once where it is missing.
# Advisories are asked for only where their database can be reached (`tests/deny.sh advisories`): a check must not fail
# because a network is away.
set -euo pipefail
cd "$(dirname "$0")/.."
version=0.20.2
tools="${XDG_CACHE_HOME:-$HOME/.cache}/volhold/tools"

deny=$(command -v cargo-deny || true)
[ -n "$deny" ] || deny="$tools/bin/cargo-deny"
if [ ! -x "$deny" ]; then
    echo "building cargo-deny $version (once, some minutes)"
    CARGO_TARGET_DIR="$tools/target" CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off \
        CARGO_PROFILE_RELEASE_DEBUG=false \
        cargo install --quiet --locked --root "$tools" --version "$version" cargo-deny
    rm -rf "$tools/target"
fi
# It reads the manifests of all that the lock file names, also of what only other systems build and no build here fetches.
cargo fetch --quiet --locked || echo "cargo fetch failed: cargo-deny goes on with what is here" >&2
"$deny" --offline check bans licenses sources "$@"
