#!/usr/bin/env bash
# Makes the packages twice, the second time in another folder with an empty build folder, and compares every byte. The first
# time costs little where test-packages has just made them; the second compiles everything once more.
#
#   reproducible.sh [--without-aws]     without what takes longest to compile, for a run that has no time for it
set -euo pipefail
cd "$(dirname "$0")/../.."
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -c "safe.directory=$PWD" log -1 --format=%ct)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A longer path than this one, in which nobody knows git.
elsewhere=$work/another-folder-with-a-long-name/volhold
mkdir -p "$elsewhere"
git -c "safe.directory=$PWD" ls-files -z --cached --others --exclude-standard | tar --null -T - -c | tar -x -C "$elsewhere"

rm -rf "$CARGO_TARGET_DIR/packages"
packaging/build.sh "$@"
(cd "$elsewhere" && CARGO_TARGET_DIR=$work/build packaging/build.sh "$@")
different=0
for package in "$work"/build/packages/*; do
    first=$CARGO_TARGET_DIR/packages/$(basename "$package")
    if cmp "$package" "$first"; then
        echo "same bytes: $(basename "$package")"
    else
        different=1
    fi
done
if [ $different = 1 ]; then
    cmp "$work"/build/*/release/volhold "$CARGO_TARGET_DIR"/x86_64-unknown-linux-gnu/release/volhold && echo "the program itself is the same" >&2
    exit 1
fi
