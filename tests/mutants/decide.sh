#!/usr/bin/env bash
# Does a test notice every small change of the decisions? cargo-mutants changes one thing at a time in `src/decide` (a function
# that returns a constant, `<` for `<=`, `&&` for `||`, …) and runs the tests of that module. A change that no test notices
# survives, and is told.
#
# `model` and `decide` use nothing else of this house, so they are built as a crate of their own: seconds for each change
# instead of a minute.
#
#     tests/mutants/decide.sh                  all of src/decide
#     tests/mutants/decide.sh format           the files whose path begins so, below src/decide
#     tests/mutants/decide.sh format --list    runs nothing
#
# What comes after the first word goes to cargo-mutants (`cargo install --locked cargo-mutants`).
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
part=${1:-}
[ $# -gt 0 ] && shift

work=${CARGO_TARGET_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/volhold/target}/mutants-decide
mkdir -p "$work"
exec 9>"$work/lock"
flock --nonblock 9 || { echo "another run works in $work" >&2; exit 2; }
kit=$work/kit
rm -rf "$kit"
mkdir -p "$kit/src"
cp -a "$root"/src/{model.rs,model,decide.rs,decide} "$kit/src/"
cp "$root/Cargo.lock" "$kit/"
printf 'pub mod decide;\npub mod model;\n' >"$kit/src/lib.rs"
{
    printf '[package]\nname = "volhold"\nversion = "0.1.0"\nedition = "2024"\n[workspace]\n[dependencies]\n'
    grep -E '^(jiff|libc|serde|serde_json|sha2|uuid|thiserror) = ' "$root/Cargo.toml"
    printf '[dev-dependencies]\n'
    grep -E '^(proptest|tempfile) = ' "$root/Cargo.toml"
    # The tests enumerate hundreds of thousands of states, in seconds without any optimiser.
    printf '[profile.dev]\nopt-level = 1\ndebug = false\n[profile.dev.package.sha2]\nopt-level = 3\n'
} >"$kit/Cargo.toml"

cd "$kit"
unset CARGO_TARGET_DIR
export CARGO_PROFILE_DEV_OPT_LEVEL=${CARGO_PROFILE_DEV_OPT_LEVEL:-1} CARGO_PROFILE_DEV_DEBUG=0
# `-- --lib`: the examples in the documentation show what must not compile, and take longer than the tests.
exec cargo mutants --dir "$kit" --output "$work" --file "src/decide/$part*" --file "src/decide/$part*/**" \
    --exclude '**/tests.rs' --exclude '**/tests/**' --test-tool cargo --no-shuffle --minimum-test-timeout 300 "$@" -- --lib decide 9>&-
