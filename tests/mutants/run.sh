#!/usr/bin/env bash
# Is every guard held by a test? Each patch here is a deliberate bug; its first line names the test that has to notice:
#
#     # test: decide::format::tests::NAME     a test of the library
#     # test: it incidents_b::NAME            a test of the binary `it`, with real parts (root)
#     # what the bug is, in one line
#
# For each patch: apply to a copy of the tree, build, run that one test, demand red. Without any patch every named test has
# to be green, and it has to exist: a red test proves nothing otherwise.
#
#     tests/mutants/run.sh              all of them
#     tests/mutants/run.sh decide-      those whose file name begins so
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
work=${CARGO_TARGET_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/volhold/target}/mutants
tree=$work/tree
log=$work/last.log
export CARGO_TARGET_DIR=$work/target

patches=()
for wanted in "${@:-}"; do
    for patch in "$root"/tests/mutants/"$wanted"*.patch; do
        [ -e "$patch" ] && patches+=("$patch")
    done
done
if [ ${#patches[@]} -eq 0 ]; then
    echo "no patch is called so" >&2
    exit 2
fi

# The copy stands in one place, so that only what a patch touches is built again.
remove_tree() {
    git -C "$root" worktree remove --force "$tree" 2>/dev/null || rm -rf "$tree"
    git -C "$root" worktree prune
}
trap remove_tree EXIT
mkdir -p "$work"
remove_tree
git worktree add --quiet --detach "$tree" HEAD
# What is not committed yet counts too.
git diff HEAD --binary | git -C "$tree" apply --allow-empty
git -C "$tree" add --all
git -C "$tree" -c user.name=mutants -c user.email=mutants@localhost commit --quiet --allow-empty --no-verify -m "as it is"

named() { sed -n '1s/^# test: //p' "$1"; }
meant() { sed -n '2s/^# //p' "$1"; }
target_of() {
    case $1 in
    "it crash::points::"*) echo "--test it --features fault-points" ;;
    "it "*) echo "--test it" ;;
    *) echo "--lib" ;;
    esac
}
build() { (cd "$tree" && cargo test --locked --quiet --no-run $(target_of "$1")) >"$log" 2>&1; }
# 0 green, 1 red, 2 no such test.
run_test() {
    local name=${1#it } status=0
    (cd "$tree" && cargo test --locked $(target_of "$1") -- --exact "$name") >"$log" 2>&1 || status=$?
    if [ $status -eq 0 ]; then
        grep -q '^test result: ok. [1-9]' "$log" || return 2
    else
        grep -q '^test result: FAILED' "$log" || return 2
        return 1
    fi
}

failed=0
say() { printf '%-11s %-44s %s\n' "$1" "$2" "$3"; }

# Each test once without any bug.
tests=$(for patch in "${patches[@]}"; do named "$patch"; done | sort -u)
while read -r test; do
    [ -n "$test" ] || continue
    if ! build "$test"; then
        echo "the tree does not build without any patch:" >&2
        tail -20 "$log" >&2
        exit 1
    fi
    status=0
    run_test "$test" || status=$?
    case $status in
    0) ;;
    1) say "RED BEFORE" "-" "$test"; failed=$((failed + 1)) ;;
    *) say "NO TEST" "-" "$test"; failed=$((failed + 1)) ;;
    esac
done <<<"$tests"

for patch in "${patches[@]}"; do
    name=$(basename "$patch" .patch)
    test=$(named "$patch")
    if [ -z "$test" ]; then
        say "NO NAME" "$name" "the first line names no test"
        failed=$((failed + 1))
        continue
    fi
    if ! git -C "$tree" apply "$patch" 2>"$log"; then
        say "NO FIT" "$name" "$(head -1 "$log")"
        failed=$((failed + 1))
        continue
    fi
    if ! build "$test"; then
        say "NO BUILD" "$name" "$(grep -m1 '^error' "$log" || true)"
        failed=$((failed + 1))
    else
        status=0
        run_test "$test" || status=$?
        case $status in
        1) say "red" "$name" "$(meant "$patch")" ;;
        0) say "SURVIVED" "$name" "$(meant "$patch") ($test is green)"; failed=$((failed + 1)) ;;
        *) say "NO TEST" "$name" "$test"; failed=$((failed + 1)) ;;
        esac
    fi
    git -C "$tree" checkout --quiet -- .
done

echo
if [ $failed -eq 0 ]; then
    echo "${#patches[@]} deliberate bugs, each noticed"
else
    echo "${#patches[@]} deliberate bugs, $failed not as they should be" >&2
    exit 1
fi
