#!/usr/bin/env bash
# Finds a cargo that is new enough for this crate and prints, for a shell to evaluate, how to reach it; otherwise says how to
# get one. Downloads nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
needed=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

# Under sudo the path is often a plain one: the toolchain of the person who typed the command counts too.
homes=("$HOME")
[ -z "${SUDO_USER:-}" ] || homes+=("$(getent passwd "$SUDO_USER" | cut -d: -f6)")
candidates=()
found=$(command -v cargo || true)
[ -z "$found" ] || candidates+=("$(dirname "$found")")
for home in "${homes[@]}"; do candidates+=("$home/.cargo/bin"); done

best=
for dir in "${candidates[@]}"; do
    [ -x "$dir/cargo" ] || continue
    # A rustup in a home keeps its toolchains beside it, also when it is another person's home.
    rustup=${RUSTUP_HOME:-}
    beside="${dir%/.cargo/bin}/.rustup"
    [ -n "$rustup" ] || [ "$dir" = "${dir%/.cargo/bin}" ] || [ ! -d "$beside" ] || rustup=$beside
    version=$(${rustup:+env "RUSTUP_HOME=$rustup"} "$dir/cargo" --version 2>/dev/null | cut -d' ' -f2) || continue
    [ -n "$version" ] || continue
    if [ "$(printf '%s\n%s\n' "$needed" "$version" | sort -V | head -n 1)" = "$needed" ]; then
        printf 'export PATH=%q\n' "$dir:$PATH"
        [ -z "$rustup" ] || printf 'export RUSTUP_HOME=%q\n' "$rustup"
        exit 0
    fi
    best="$version ($dir/cargo)"
done

cat >&2 <<EOF
volhold needs Rust $needed or newer; $([ -n "$best" ] && echo "found only $best" || echo "no cargo was found").

  The packages of Debian 12, Debian 13 and Ubuntu 24.04 (rustc, cargo) are too old. What works there:

    apt-get install rustup && rustup toolchain install stable     (Debian 13, Ubuntu 24.04 and later)
    or rustup as described on https://rustup.rs                   (Debian 12)

  Then run the same command again.
EOF
exit 1
