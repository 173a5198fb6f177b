#!/usr/bin/env bash
# The main job of volhold, end to end on this machine, in a folder of its own: `make demo`.
#
# Two volumes (loop devices on image files). One goes from blank to an open gate with a real etcd behind it, then through
# the first incident that volhold exists for: its superblock is lost, and to other tools it looks blank. The other goes
# through the second: an empty etcd beside the old data. Removes everything it made at the end, also on Ctrl-C.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH="$PATH:/usr/sbin:/sbin"
# Whatever service manager started this shell: it is not the one of the demo's agent.
unset NOTIFY_SOCKET LISTEN_PID LISTEN_FDS LISTEN_FDNAMES

if [ "$(id -u)" != 0 ]; then
    echo "the demo makes loop devices and mounts: please run it as root" >&2
    exit 1
fi
# A mount namespace of its own: a container that starts elsewhere in these minutes copies the machine's mounts, and would keep
# the demo's volumes in use.
if [ -z "${VOLHOLD_DEMO_APART:-}" ]; then
    VOLHOLD_DEMO_APART=1 exec unshare --mount tests/demo/demo.sh
fi
[ -e /dev/loop-control ] || { echo "this machine has no loop devices (/dev/loop-control is missing)" >&2; exit 1; }

# --- how it looks -------------------------------------------------------------------------------------------------------
if [ -t 1 ]; then bold=$'\e[1m' dim=$'\e[2m' plain=$'\e[0m'; else bold='' dim='' plain=''; fi
chapter() { printf '\n%s── %s %s\n' "$bold" "$*" "$plain"; }
say() { printf '%s\n' "$*"; }
# Shows a command as a person would type it, then runs it.
show() { printf '%s$ %s%s\n' "$bold" "$*" "$plain"; "$@"; }
# The same for one that is expected to end with a certain code: anything else ends the demo.
expect() {
    local wanted=$1 code=0
    shift
    printf '%s$ %s%s\n' "$bold" "$*" "$plain"
    "$@" || code=$?
    printf '%s[exit %s]%s\n' "$dim" "$code" "$plain"
    [ "$code" = "$wanted" ] || { echo "demo: expected exit code $wanted" >&2; exit 1; }
}

# --- what is left behind: nothing -----------------------------------------------------------------------------------------
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/volhold-demo.XXXXXX")
agent='' etcd='' loops=()
# Ends a child. An etcd that has only just begun to serve may lose the signal: it is asked again, and at last killed.
stop() { # PID SIGNAL
    local tries
    [ -n "$1" ] || return 0
    for ((tries = 0; tries < 100; tries++)); do
        [ $((tries % 20)) != 0 ] || kill "-$2" "$1" 2>/dev/null || break
        kill -0 "$1" 2>/dev/null || break
        sleep 0.1
    done
    kill -KILL "$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
}
# A reader of the agent that was just killed may need a moment to be gone.
unmount() {
    local at tries
    for at in "$@"; do
        for ((tries = 0; tries < 50; tries++)); do
            ! umount "$at" 2>/dev/null || continue 2
            sleep 0.1
        done
        umount "$at"
    done
}
cleanup() {
    local code=$?
    trap '' INT TERM
    set +e
    stop "$etcd" TERM
    stop "$agent" TERM
    awk -v dir="$dir/" 'index($5, dir) == 1 { print $5 }' /proc/self/mountinfo | tac | while read -r at; do
        umount "$at" || umount --lazy "$at"
    done
    for loop in "${loops[@]}"; do losetup --detach "$loop"; done
    chattr -R -f -i "$dir"
    rm -rf "$dir"
    [ "$code" = 0 ] || echo "demo: ended early (exit $code); everything it made is removed" >&2
    exit "$code"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# --- building -----------------------------------------------------------------------------------------------------------
chapter "Building volhold (without the AWS parts)"
say "The first time, this also builds what volhold is made of: two minutes or so."
cargo build --locked --no-default-features
target=${CARGO_TARGET_DIR:-target}
# A copy on the path: the lines below are then what a person would type.
mkdir "$dir/bin"
cp "$target/debug/volhold" "$dir/bin/volhold"
export PATH="$dir/bin:$PATH"
volhold --version

# --- the node -----------------------------------------------------------------------------------------------------------
chapter "A node with two volumes"
new_volume() { # NAME SIZE: sets $device
    truncate -s "$2" "$dir/$1.img"
    device=$(losetup --find --show "$dir/$1.img")
    loops+=("$device")
}
new_volume main 256M; main=$device
new_volume events 128M; events=$device
cat >"$dir/config.toml" <<EOF
[paths]
state = "$dir/state"
run = "$dir/run"

[[guard]]
name = "etcd-main"
mode = "enforce"
provider = "local"
device = "$main"
format = "if-blank"
fresh = "allow"
publish = "$dir/etcd-main"
data_dir = "data"

[[guard]]
name = "etcd-events"
mode = "enforce"
provider = "local"
device = "$events"
format = "if-blank"
fresh = "allow"
publish = "$dir/etcd-events"
EOF
export VOLHOLD_CONFIG="$dir/config.toml"
mkdir -p "$dir/state" "$dir/run"
say "Both are guarded; their configuration is $VOLHOLD_CONFIG:"
sed -n '/name = "etcd-main"/,/^$/p' "$VOLHOLD_CONFIG"
expect 0 volhold config check

start_agent() {
    printf '%s$ volhold run &%s\n' "$bold" "$plain"
    volhold run >>"$dir/agent.log" 2>&1 &
    agent=$!
}
start_etcd() { # NAME DATA-DIR
    printf '%s$ etcd --data-dir %s &%s\n' "$bold" "$2" "$plain"
    etcd --name "$1" --data-dir "$2" --logger zap --log-outputs stderr \
        --listen-client-urls "http://127.0.0.1:$port" --advertise-client-urls "http://127.0.0.1:$port" \
        --listen-peer-urls "http://127.0.0.1:$((port + 1))" \
        --initial-advertise-peer-urls "http://127.0.0.1:$((port + 1))" \
        --initial-cluster "$1=http://127.0.0.1:$((port + 1))" >"$dir/etcd.log" 2>&1 &
    etcd=$!
    until grep -qs 'serving client traffic' "$dir/etcd.log"; do
        kill -0 "$etcd" 2>/dev/null || { tail -n 5 "$dir/etcd.log" >&2; exit 1; }
        sleep 0.1
    done
}
port=23790
while (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 10)); done
export ETCDCTL_API=3 ETCDCTL_ENDPOINTS="http://127.0.0.1:$port"

chapter "1. From blank to an open gate"
say "Every byte of a volume is read before it may be formatted. These are blank, and proven so."
start_agent
expect 0 volhold wait etcd-main --timeout 60s
expect 0 volhold wait etcd-events --timeout 60s
say ""
say "Each was formatted and mounted, and its gate is open:"
expect 0 volhold status

chapter "2. etcd starts behind the gate"
say "A unit would have: Requires=volhold-gate@etcd-main.service. Here the shell waits:"
expect 0 volhold wait etcd-main
start_etcd master-a "$dir/etcd-main/data"
for n in 1 2 3 4 5; do etcdctl put "/registry/pods/$n" "pod $n" >/dev/null; done
show etcdctl get --prefix /registry --keys-only
expect 0 volhold gate check etcd-main
say ""
say "etcd and the agent stop, and the node goes down: the volume is unmounted."
stop "$etcd" TERM; etcd=''
stop "$agent" TERM; agent=''
unmount "$dir/etcd-main" "$dir/etcd-events"
rm -rf "$dir/run" && mkdir "$dir/run"

chapter "3. Incident one: the superblock is lost"
cp --sparse=always "$dir/main.img" "$dir/main.copy"
say "Something overwrites the first 4096 bytes of the volume. The etcd data behind them is whole."
show dd if=/dev/zero of="$main" bs=4096 count=1 conv=fsync status=none
say ""
say "What other tools say now. Exit 2 of blkid reads as \"unformatted\": this is where they ran mkfs."
expect 2 blkid -p "$main"
before=$(sha256sum <"$main")
say ""
say "The node boots. This guard may format what is blank (format = \"if-blank\"), and the gate stays shut:"
start_agent
expect 3 volhold wait etcd-main --timeout 3s
expect 3 volhold status
say ""
say "What it saw on the volume. Anybody may look, without the agent:"
expect 4 volhold inspect "$main"
say ""
say "What a person does now:"
show volhold explain etcd-main || true
after=$(sha256sum <"$main")
say ""
say "sha256 of the volume before: ${before%% *}"
say "                      after: ${after%% *}"
[ "$before" = "$after" ] || { echo "demo: the volume was written to" >&2; exit 1; }
say "Nothing was written to it."

chapter "4. The superblock comes back, and so does etcd"
say "A person would repair a copy (e2fsck -b 32768). Here the first block is put back, and the guard lets go of the volume"
say "for as long as that takes:"
expect 0 volhold release etcd-main --for 10m --confirm "local:$dir/main.img"
show dd if="$dir/main.copy" of="$main" bs=4096 count=1 conv=notrunc,fsync status=none
say ""
say "It looks again, finds the filesystem and the etcd data that its records know, and opens:"
expect 0 volhold retry etcd-main
expect 0 volhold wait etcd-main --timeout 60s
start_etcd master-a "$dir/etcd-main/data"
show etcdctl get /registry/pods/3
stop "$etcd" TERM; etcd=''
stop "$agent" TERM; agent=''
unmount "$dir/etcd-main" "$dir/etcd-events"
rm -rf "$dir/run" && mkdir "$dir/run"

chapter "5. Incident two: an empty etcd beside the old data"
say "Somebody's tool made a new data dir on the volume and wants to start etcd in it."
mkdir "$dir/somebody"
mount "$main" "$dir/somebody"
mkdir -m 700 "$dir/somebody/new"
start_etcd master-a "$dir/somebody/new"
stop "$etcd" TERM; etcd=''
unmount "$dir/somebody"
show sed -i 's/^data_dir = "data"/data_dir = "new"/' "$VOLHOLD_CONFIG"
say "That etcd would be healthy, and the API server behind it would serve nothing. The node boots:"
start_agent
expect 3 volhold wait etcd-main --timeout 3s
show volhold explain etcd-main || true
say ""
say "The other guard never noticed:"
expect 3 volhold status

chapter "Done"
say "Everything that the demo made is being removed. What volhold can do: README.md."
