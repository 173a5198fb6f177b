#!/usr/bin/env bash
# Lists what a binary asks of the system it runs on, and fails where an older system that volhold is made for has not got it:
# glibc 2.31 (Debian 11), libblkid up to BLKID_2.17, no other library.
set -euo pipefail
binary=$1
glibc=2.31
blkid=2.17

needed=$(objdump -p "$binary" | sed -n 's/^ *NEEDED *//p' | sort)
versions=$(objdump -T "$binary" | grep -oE '\(?(GLIBC|BLKID|GCC)_[0-9A-Z_.]+' | tr -d '(' | sort -uV)
echo "libraries: $(echo $needed)"
echo "versions:  $(echo $versions)"

failed=0
for library in $needed; do
    case $library in
    libc.so.6 | libm.so.6 | libpthread.so.0 | libdl.so.2 | librt.so.1 | ld-linux-x86-64.so.2 | libblkid.so.1) ;;
    *) echo "needs a library that no package depends on: $library" >&2; failed=1 ;;
    esac
done
for version in $versions; do
    case $version in
    GLIBC_*) ceiling=$glibc ;;
    BLKID_*) ceiling=$blkid ;;
    *) echo "needs an unexpected version: $version" >&2; failed=1; continue ;;
    esac
    if [ "$(printf '%s\n%s\n' "$ceiling" "${version#*_}" | sort -V | tail -1)" != "$ceiling" ]; then
        echo "needs $version, wanted at most $ceiling:" >&2
        objdump -T "$binary" | grep -F "$version" >&2
        failed=1
    fi
done
# Without these the listing above would have looked at something else than volhold.
case $versions in *BLKID_2.15*) ;; *) echo "libblkid is not asked for at all" >&2; failed=1 ;; esac
exit $failed
