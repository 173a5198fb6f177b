#!/usr/bin/env bash
# Is every guard held by a test? Each patch here is a deliberate bug; its first lines say what it shows:
#
#     # test: decide::format::tests::NAME     a test of the library
#     # test: it incidents_b::NAME            a test of the binary `it`, with real parts (root)
#     # what the bug is, in one line
#     # incident: A in-use, by swap           the row of `tests/it/mutants.rs` that it stands for, where it stands for one
#
# For each patch: apply to a copy of the tree, build, run that one test, demand red. Without any patch every named test has
# to be green, and it has to exist: a red test proves nothing otherwise. All of them are tried, whatever comes out.
#
#     tests/mutants/run.sh              all of them: about an hour on two cores
#     tests/mutants/run.sh decide-      those whose file name begins so
#     tests/mutants/run.sh --since REV  those that are new, or that break or test a file which has changed since REV
#     tests/mutants/run.sh --list       runs nothing: each incident, its test and its deliberate bug, then all the others
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD

named() { sed -n '1s/^# test: //p' "$1"; }
meant() { sed -n '2s/^# //p' "$1"; }
stands_for() { sed -n '3s/^# incident: //p' "$1"; }
# The files that a patch changes.
breaks() { sed -n 's,^+++ b/,,p' "$1"; }

list() {
    local patch
    for patch in "$root"/tests/mutants/*.patch; do
        printf '%s\t%s\t%s\n' "$(stands_for "$patch")" "$(basename "$patch" .patch)" "$(named "$patch")"
    done | LC_ALL=C sort | awk -F '\t' '
        $1 == "" { others = others sprintf("    %-42s %s\n", $2, $3); next }
        $1 != last { print $1; last = $1 }
        { printf "    %-42s %s\n", $2, $3 }
        END { printf "\nguards that no incident of the table asks for by name\n%s", others }'
}

since=
wanted=()
while [ $# -gt 0 ]; do
    case $1 in
    --list) list; exit 0 ;;
    --since) since=${2:?--since wants a revision}; shift ;;
    -*) echo "unknown option $1" >&2; exit 2 ;;
    *) wanted+=("$1") ;;
    esac
    shift
done

# Has the patch, or what it breaks, or the file of its test changed?
changed=$([ -z "$since" ] || { git diff --name-only "$since" -- && git ls-files --others --exclude-standard; })
concerned() {
    [ -n "$since" ] || return 0
    local test module
    test=$(named "$1")
    module=${test#it }
    module=${module%%::*}
    { echo "tests/mutants/$(basename "$1")"; breaks "$1"; echo "tests/it/$module.rs"; } | grep -qxFf <(echo "$changed")
}

patches=()
for prefix in "${wanted[@]:-}"; do
    for patch in "$root"/tests/mutants/"$prefix"*.patch; do
        if [ -e "$patch" ] && concerned "$patch"; then patches+=("$patch"); fi
    done
done
if [ ${#patches[@]} -eq 0 ]; then
    [ -n "$since" ] && { echo "no deliberate bug is concerned"; exit 0; }
    echo "no patch is called so" >&2
    exit 2
fi

work=${CARGO_TARGET_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/volhold/target}/mutants
tree=$work/tree
log=$work/last.log
export CARGO_TARGET_DIR=$work/target
# Each build is used once: what counts is how soon it is there.
export CARGO_PROFILE_DEV_OPT_LEVEL=${CARGO_PROFILE_DEV_OPT_LEVEL:-0} CARGO_PROFILE_DEV_DEBUG=${CARGO_PROFILE_DEV_DEBUG:-0}
# A test gives up by itself after two minutes of waiting for one thing. Whoever is still at it now hangs.
limit=${VOLHOLD_MUTANT_LIMIT:-900}

mkdir -p "$work"
exec 9>"$work/lock"
flock --nonblock 9 || { echo "another run works in $work" >&2; exit 2; }

# The copy stands in one place, so that only what a patch touches is built again.
remove_tree() {
    git -C "$root" worktree remove --force "$tree" 2>/dev/null || rm -rf "$tree"
    git -C "$root" worktree prune
}
trap remove_tree EXIT
remove_tree
git worktree add --quiet --detach "$tree" HEAD
# What is not committed yet counts too.
git diff HEAD --binary | git -C "$tree" apply --allow-empty
git ls-files --others --exclude-standard -z | xargs -0 -r cp --parents -t "$tree"
git -C "$tree" add --all
git -C "$tree" -c user.name=mutants -c user.email=mutants@localhost commit --quiet --allow-empty --no-verify -m "as it is"

target_of() {
    case $1 in
    "it crash::points::"* | "it crash::directories::"* | "it watchdog::stalls::"*) echo "--test it --features fault-points" ;;
    "it ebs::"*) echo "--test it --features aws" ;;
    "it "*) echo "--test it" ;;
    *) echo "--lib" ;;
    esac
}
# Builds one kind of test; the program goes to $program. Without the SDK, which takes longer than all the rest, where the test
# does not ask for it.
build() {
    program=
    (cd "$tree" && cargo test --locked --no-default-features --no-run $1 </dev/null 9>&-) >"$log" 2>&1 || return 1
    program=$(sed -n 's/^ *Executable .*(\(.*\))$/\1/p' "$log" | tail -1)
    [ -n "$program" ]
}
# Runs tests of the program that was built last, by their full names.
run_tests() {
    local status=0
    (cd "$tree" && timeout --kill-after=10 "$limit" "$program" --exact "$@" </dev/null 9>&-) >"$log" 2>&1 || status=$?
    return $status
}
# 0 green, 1 red, 2 no such test, 3 hangs, 4 something else.
run_test() {
    local status=0
    run_tests "${1#it }" || status=$?
    case $status in
    0) grep -q '^test result: ok. [1-9]' "$log" || return 2 ;;
    124 | 137) return 3 ;;
    *) grep -q '^test result: FAILED' "$log" && return 1 || return 4 ;;
    esac
}

failed=0
say() { printf '%-11s %-44s %s\n' "$1" "$2" "$3"; }
wrong() { failed=$((failed + 1)); say "$@"; }

# Each test once without any bug, those of one program together.
tests=$(for patch in "${patches[@]}"; do named "$patch"; done | sort -u | sed '/^$/d')
while read -r target; do
    mapfile -t of_target < <(while read -r test; do [ "$(target_of "$test")" = "$target" ] && echo "$test"; done <<<"$tests" || true)
    if ! build "$target"; then
        echo "the tree does not build without any patch:" >&2
        tail -20 "$log" >&2
        exit 1
    fi
    run_tests --test-threads=2 "${of_target[@]#it }" || true
    cp "$log" "$log.before"
    for test in "${of_target[@]}"; do
        grep -qxF "test ${test#it } ... ok" "$log.before" && continue
        # Alone, where nothing else is in its way.
        status=0
        run_test "$test" || status=$?
        case $status in
        0) ;;
        2) wrong "NO TEST" "-" "$test" ;;
        *) wrong "RED BEFORE" "-" "$test" ;;
        esac
    done
done < <(while read -r test; do target_of "$test"; done <<<"$tests" | sort -u)
echo "$(wc -l <<<"$tests") tests, without any bug"

for patch in "${patches[@]}"; do
    name=$(basename "$patch" .patch)
    test=$(named "$patch")
    if [ -z "$test" ]; then
        wrong "NO NAME" "$name" "the first line names no test"
        continue
    fi
    if ! git -C "$tree" apply "$patch" 2>"$log"; then
        wrong "NO FIT" "$name" "$(head -1 "$log")"
        continue
    fi
    if ! build "$(target_of "$test")"; then
        wrong "NO BUILD" "$name" "$(grep -m1 '^error' "$log" || true)"
    else
        status=0
        run_test "$test" || status=$?
        case $status in
        0) wrong "SURVIVED" "$name" "$(meant "$patch") ($test is green)" ;;
        1) say "red" "$name" "$(meant "$patch")" ;;
        2) wrong "NO TEST" "$name" "$test" ;;
        3) wrong "HANGS" "$name" "$test" ;;
        *) wrong "DIED" "$name" "$(tail -1 "$log")" ;;
        esac
    fi
    git -C "$tree" checkout --quiet -- .
    git -C "$tree" clean --quiet --force -d
done

echo
if [ $failed -eq 0 ]; then
    echo "${#patches[@]} deliberate bugs, each noticed"
else
    echo "${#patches[@]} deliberate bugs, $failed not as they should be" >&2
    exit 1
fi
