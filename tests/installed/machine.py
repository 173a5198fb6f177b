"""A machine to install packages on: a Debian root with a real systemd as process 1, in a container that boots in a second.

What is written goes to a layer that is thrown away. Loop devices of this machine can be handed in. It lacks udev, SELinux and
the RPM world's own paths; dnf and rpm are Debian's.
"""
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "volhold"
PACKAGES = ("systemd,systemd-sysv,dbus,udev,e2fsprogs,xfsprogs,mount,procps,libblkid1,kmod,init-system-helpers,"
            "etcd-server,etcd-client,rpm,dnf,needrestart")
# Counts up when what is done to the root changes.
EDITION = 1
PATIENCE = 60

# A cgroup of its own below a cgroup2 that is where systemd looks for it, and the layer over the root.
SETUP = """
set -e
[ -e /sys/fs/cgroup/cgroup.controllers ] || { umount -R /sys/fs/cgroup; mount -t cgroup2 cgroup2 /sys/fs/cgroup; }
mkdir "/sys/fs/cgroup/$1"; echo $$ >"/sys/fs/cgroup/$1/cgroup.procs"
mount -t overlay overlay -o "lowerdir=$2,upperdir=$3/upper,workdir=$3/work" "$3/root"
shift 3
exec "$@"
"""


def mirror():
    """Where this machine's own packages come from."""
    listed = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Codename: bookworm",
                             "Component: main"], capture_output=True, text=True, check=True).stdout.split()
    if not listed:
        raise SystemExit("no source of Debian bookworm is configured for apt on this machine: there is nothing to build a root from")
    return listed[0]


def root():
    """The root, built now if this machine has none; VOLHOLD_TEST_ROOT names another."""
    if given := os.environ.get("VOLHOLD_TEST_ROOT"):
        return Path(given)
    roots = CACHE / "roots"
    place = roots / f"packages-{EDITION}"
    if place.exists():
        return place
    print(f"builds the root of the package tests in {place}: takes a few minutes, once", flush=True)
    roots.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=".new-", dir=roots))
    new.chmod(0o755)
    made = subprocess.run(["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(new), mirror()],
                          capture_output=True, text=True)
    if made.returncode:
        raise SystemExit(f"debootstrap failed:\n{made.stdout[-3000:]}{made.stderr}")
    wants = new / "etc/systemd/system/multi-user.target.wants"
    for link in ("etcd.service", "e2scrub_reap.service"):
        (wants / link).unlink(missing_ok=True)
    for unit in ("apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "fstrim.timer",
                 "man-db.timer", "dnf-makecache.timer", "systemd-networkd.service", "systemd-resolved.service",
                 "systemd-timesyncd.service", "systemd-logind.service", "console-getty.service", "systemd-firstboot.service"):
        link = new / "etc/systemd/system" / unit
        if not link.is_symlink():
            link.symlink_to("/dev/null")
    (new / "etc/hosts").write_text("127.0.0.1 localhost\n")
    (new / "etc/machine-id").write_text("")
    (new / "var/log/journal").mkdir(parents=True, exist_ok=True)
    for deb in (new / "var/cache/apt/archives").glob("*.deb"):
        deb.unlink()
    new.rename(place)
    return place


class Machine:
    """Use with `with`: what it runs is killed at the end."""

    count = 0

    def __init__(self, devices=(), folders=()):
        Machine.count += 1
        self.name = f"volhold-pkg-{os.getpid()}-{Machine.count}"
        self.top = Path(tempfile.mkdtemp(prefix="volhold-pkg-"))
        for part in ("upper", "work", "root"):
            (self.top / part).mkdir()
        (self.top / "upper").chmod(0o755)
        binds = [f"--bind={device}" for device in devices] + [f"--bind-ro={folder}" for folder in folders]
        console = open(self.top / "console", "w")
        self.nspawn = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", SETUP, "sh", self.name, str(root()), str(self.top),
             "systemd-nspawn", "--quiet", "--directory", str(self.top / "root"), "--boot", "--register=no", "--keep-unit",
             "--link-journal=no", "--console=pipe", "--private-network", "--capability=all", f"--machine={self.name}", *binds],
            # Its own filter knows no openat2 and no pidfd_getfd, which every machine has.
            env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1", "SYSTEMD_SECCOMP": "0"}, stdin=subprocess.DEVNULL, stdout=console,
            stderr=subprocess.STDOUT)
        try:
            self.init = self._await_init()
            self.until("the machine is up", lambda: self.run("systemctl is-system-running").stdout.strip() in ("running", "degraded"))
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is not None:
            print(self.run("systemctl --no-pager --all list-units 'volhold*' 'etcd*'; journalctl --no-pager -n 80").stdout)
        self.close()

    def close(self):
        init = getattr(self, "init", None)
        # Its process 1 first: nspawn alone, killed, would leave it behind.
        for pid in filter(None, (init, self.nspawn.pid)):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.nspawn.wait()
        until = time.monotonic() + 10
        while init and Path(f"/proc/{init}").exists() and time.monotonic() < until:
            time.sleep(0.02)
        for line in Path("/proc/self/mounts").read_text().splitlines():
            at, kind = line.split()[1:3]
            own = Path(at) / self.name
            if kind == "cgroup2" and own.is_dir():
                self._remove_cgroup(own, until)
        # The seal below a mountpoint is a flag that keeps even root from removing it.
        subprocess.run(["chattr", "-R", "-i", self.top / "upper"], stderr=subprocess.DEVNULL)
        shutil.rmtree(self.top, ignore_errors=True)

    def _remove_cgroup(self, own, until):
        """A cgroup goes once its last process is gone, which takes a moment after the kill."""
        while own.is_dir() and time.monotonic() < until:
            for folder in [*sorted(own.rglob("*/"), reverse=True), own]:
                try:
                    folder.rmdir()
                except OSError:
                    time.sleep(0.02)

    def _await_init(self):
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if self.nspawn.poll() is not None:
                break
            todo = [self.nspawn.pid]
            while todo:
                pid = todo.pop()
                try:
                    status = Path(f"/proc/{pid}/status").read_text()
                    inside = [line.split() for line in status.splitlines() if line.startswith("NSpid:")][0]
                    if inside[-1] == "1" and len(inside) > 2 and Path(f"/proc/{pid}/comm").read_text().strip() == "systemd":
                        return pid
                    todo += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
                except (OSError, IndexError):
                    pass
            time.sleep(0.02)
        raise AssertionError("no systemd comes up: " + (self.top / "console").read_text())

    def run(self, line, **variables):
        """A line of shell; what it answered."""
        given = [f"{name}={value}" for name, value in variables.items()]
        return subprocess.run(
            ["nsenter", "--target", str(self.init), "--all", "--", "env", "--ignore-environment",
             "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "HOME=/root", *given, "timeout", "300", "sh", "-c", line],
            stdin=subprocess.DEVNULL, capture_output=True, text=True)

    def sh(self, line, **variables):
        """The same, where it has to succeed; what it printed."""
        answer = self.run(line, **variables)
        assert answer.returncode == 0, f"{line}\nended with {answer.returncode}\n{answer.stdout}{answer.stderr}"
        return answer.stdout.strip()

    def write(self, at, text):
        path = Path(f"/proc/{self.init}/root{at}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def show(self, unit, what):
        return self.sh(f"systemctl show --value -p {what} '{unit}'")

    def until(self, what, so):
        until = time.monotonic() + PATIENCE
        while not so():
            assert time.monotonic() < until, f"waited in vain until {what}"
            time.sleep(0.05)
