#!/usr/bin/env bash
# Makes the packages twice, the second time in another folder with an empty build folder, and compares every byte. Not a part
# of test-packages: everything is compiled once more.
set -euo pipefail
cd "$(dirname "$0")/../.."
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -c "safe.directory=$PWD" log -1 --format=%ct)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

rm -rf "$CARGO_TARGET_DIR/packages"
packaging/build.sh
mkdir "$work/elsewhere"
git -c "safe.directory=$PWD" ls-files -z --cached --others --exclude-standard | tar --null -T - -c | tar -x -C "$work/elsewhere"
(cd "$work/elsewhere" && CARGO_TARGET_DIR=$work/build packaging/build.sh)
for package in "$work"/build/packages/*; do
    cmp "$package" "$CARGO_TARGET_DIR/packages/$(basename "$package")"
    echo "same bytes: $(basename "$package")"
done
