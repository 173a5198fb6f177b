#!/usr/bin/env python3
"""scenarios.py DIR: what becomes of a master when volhold's packages are installed, upgraded, downgraded, removed and purged.

DIR holds the deb and the rpm twice: in the version of this tree, and with a higher number in their heads. Each scenario has
a machine of its own with a real systemd, a volume on a loop device, and a real etcd. Root needed.

What this cannot show: SELinux, the paths and macros of Fedora and RHEL, their dependency names. For dnf a package that
provides what volhold's requires stands in for the rest of such a system.
"""
import json
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import contextmanager
from pathlib import Path

import newer_entry
from machine import Machine

PACKAGES = Path(sys.argv[1]).resolve()


def package(pattern, newer):
    """The higher version is this tree's with one number more: the longer name."""
    found = sorted(PACKAGES.glob(pattern), key=lambda path: len(path.name))
    assert len(found) == 2, f"{PACKAGES} holds {len(found)} of {pattern}, wanted 2"
    return found[1 if newer else 0]


@contextmanager
def volume(megabytes=192):
    """A blank volume, as a loop device."""
    with tempfile.NamedTemporaryFile(prefix="volhold-pkg-", suffix=".img") as image:
        image.truncate(megabytes * 1024 * 1024)
        device = subprocess.check_output(["losetup", "--find", "--show", image.name], text=True).strip()
        try:
            yield device
        finally:
            end = time.monotonic() + 10
            while subprocess.run(["losetup", "--detach", device], stderr=subprocess.DEVNULL).returncode and time.monotonic() < end:
                time.sleep(0.1)


class Deb:
    config_kept_after_removal = "/etc/volhold/config.toml"

    def prepare(self, m):
        pass

    def install(self, m, newer=False):
        m.sh(f"dpkg -i {package('*.deb', newer)}")

    downgrade = install

    def remove(self, m, **variables):
        return m.run("dpkg -r volhold", **variables)

    def installed(self, m):
        """Wanted or not: a removal that was refused leaves it installed and unwanted."""
        return m.run("dpkg-query -W -f '${db:Status-Status}' volhold").stdout == "installed"

    def version(self, m):
        return m.sh("dpkg-query -W -f '${Version}' volhold")


class Rpm:
    config_kept_after_removal = "/etc/volhold/config.toml.rpmsave"

    def prepare(self, m):
        """Stands in for the rest of an RPM system."""
        needs = m.sh(f"rpm -qpR {package('*.rpm', False)}").splitlines()
        provides = sorted({line for line in needs if not line.startswith(("rpmlib", "config(", "rtld("))} | {"rtld(GNU_HASH)", "xfsprogs"})
        m.write("/root/shim.spec", "Name: shim\nVersion: 1\nRelease: 1\nSummary: shim\nLicense: none\nBuildArch: noarch\nAutoReqProv: no\n"
                + "".join(f"Provides: {name}\n" for name in provides) + "%description\nshim\n%files\n")
        m.sh("cd /root && rpmbuild -bb --quiet shim.spec && rpm -i /root/rpmbuild/RPMS/noarch/shim-1-1.noarch.rpm")

    def _dnf(self, verb, what):
        return f"dnf -q -y --disablerepo='*' --setopt=gpgcheck=0 {verb} {what}"

    def install(self, m, newer=False):
        m.sh(self._dnf("upgrade" if newer else "install", package('*.rpm', newer)))

    def downgrade(self, m):
        m.sh(self._dnf("downgrade", package('*.rpm', False)))

    def remove(self, m, **variables):
        return m.run("rpm -e volhold", **variables)

    def installed(self, m):
        return m.run("rpm -q volhold").returncode == 0

    def version(self, m):
        return m.sh("rpm -q --qf '%{VERSION}' volhold")


CONFIG = """
[[guard]]
name = "main"
mode = "enforce"
device = "{device}"
publish = "/var/lib/etcd"
data_dir = "default"
owner = "etcd:etcd"
format = "if-blank"
fresh = "allow"
"""

DROP_IN = """[Unit]
Requires=volhold-gate@main.service
After=volhold-gate@main.service
[Service]
ExecStartPre=+/usr/bin/volhold gate check main
"""


def guard(m, device):
    """Configures a guard as somebody who edits the shipped file does."""
    m.sh("cat >>/etc/volhold/config.toml <<'END'\n" + CONFIG.format(device=device) + "END")
    m.write("/etc/systemd/system/etcd.service.d/50-volhold.conf", DROP_IN)
    m.sh("systemctl daemon-reload && systemctl reload volhold")


def status(m):
    return json.loads(m.run("volhold status -o json").stdout)


def running(m):
    """What must not change while etcd runs, whatever is done to the package."""
    gate = "volhold-gate@main.service"
    return {
        "etcd": m.show("etcd.service", "MainPID"),
        "etcd since": m.show("etcd.service", "ExecMainStartTimestampMonotonic"),
        "gate": m.show(gate, "ActiveState"),
        "gate since": m.show(gate, "ActiveEnterTimestampMonotonic"),
        "mount": m.sh("findmnt -n -o ID,SOURCE,FSTYPE,OPTIONS /var/lib/etcd"),
        "ready file": m.run("test -e /run/volhold/open/main").returncode,
        "key": m.sh("ETCDCTL_API=3 etcdctl get k --print-value-only"),
    }


def unchanged(m, before, what):
    now = running(m)
    assert now == before, f"{what} changed what runs:\nbefore {before}\nafter  {now}"


def life(kind, purge):
    with volume() as device, Machine([device], [PACKAGES]) as m:
        kind.prepare(m)

        # Installed: the agent runs, idles, and says so; nothing else is enabled or started.
        kind.install(m)
        m.until("the agent is active", lambda: m.show("volhold.service", "ActiveState") == "active")
        assert m.sh("systemctl is-enabled volhold.service") == "enabled"
        assert m.show("volhold.service", "StatusText") == "no guard is configured"
        assert status(m)["guards"] == []
        assert "volhold-gate" not in m.sh("systemctl list-units --all --no-legend --plain")
        assert not m.run("find /etc/systemd/system -name '*volhold-gate*' -o -name '50-volhold*'").stdout
        m.sh("cd /usr/share/man && test -s man8/volhold.8.gz && test -s man5/volhold.toml.5.gz && test -s man7/volhold-runbook.7.gz && test -s man7/volhold-kops.7.gz")

        # `journalctl -x` knows the message of a gate that was opened by hand; udev and tmpfiles know theirs.
        assert "opened by hand" in m.sh("journalctl --list-catalog 5d1f0f0b7c0e4d0c9b4f3f2a6f0d8e21")
        m.sh("test -s /lib/udev/rules.d/66-volhold.rules && test -d /run/volhold/claims")

        # A volume from blank to an etcd that runs on it.
        guard(m, device)
        m.sh("systemctl start etcd.service")
        m.sh("ETCDCTL_API=3 etcdctl put k v")
        before = running(m)
        assert before["gate"] == "active" and before["key"] == "v" and device in before["mount"], before

        # Upgraded: another agent, the same etcd, gate and mount; the edited configuration stays.
        edited = m.sh("cat /etc/volhold/config.toml")
        agent = m.show("volhold.service", "MainPID")
        old = kind.version(m)
        kind.install(m, newer=True)
        assert kind.version(m) != old
        m.until("the new agent is active", lambda: m.show("volhold.service", "ActiveState") == "active")
        assert m.show("volhold.service", "MainPID") not in (agent, "0")
        m.until("it reports the guard", lambda: [g["gate"] for g in status(m)["guards"]] == ["open"])
        unchanged(m, before, "the upgrade")
        assert m.sh("cat /etc/volhold/config.toml") == edited

        # Downgraded, and the node's ledger holds what only the newer one knows: it is stepped over. An agent that somebody has
        # stopped is not started by it.
        m.sh("systemctl stop volhold")
        entries = newer_entry.append(Path(f"/proc/{m.init}/root/var/lib/volhold/guards/main/ledger"))
        kind.downgrade(m)
        assert kind.version(m) == old
        assert m.show("volhold.service", "ActiveState") == "inactive", "an agent that was stopped was started"
        unchanged(m, before, "the downgrade")
        m.sh("systemctl start volhold")
        m.until("the old agent reports the guard", lambda: [g["gate"] for g in status(m)["guards"]] == ["open"])
        assert "ledger" not in json.dumps(status(m)["guards"][0]["reasons"])
        told = json.loads(m.sh("volhold history -o json"))["entries"]
        assert len(told) >= entries, "the history was cut"
        unchanged(m, before, "the older agent")

        # Removed: only the agent ends, and it is said what is lost.
        removed = kind.remove(m)
        assert removed.returncode == 0, removed
        assert "What is lost" in removed.stdout and "/var/lib/etcd stays" in removed.stdout, removed.stdout
        assert not kind.installed(m) and m.show("volhold.service", "ActiveState") == "inactive"
        unchanged(m, before, "the removal")
        assert m.sh("cat " + kind.config_kept_after_removal) == edited
        m.sh("test -d /var/lib/volhold/guards/main")

        if purge:
            # Purged: what volhold wrote for itself goes, what others keep beside it stays, the volume's record too.
            m.sh("echo mine >/var/lib/volhold/guards/mine && touch /var/lib/volhold/guards/main/notes")
            m.sh("dpkg -P volhold")
            unchanged(m, before, "the purge")
            assert m.sh("cd /var/lib/volhold && find . -type f | sort") == "./guards/main/notes\n./guards/mine"
            assert not m.run("ls -d /etc/volhold").stdout
            m.sh("test -s /var/lib/etcd/.volhold/ledger")


def held(kind):
    """A volume whose filesystem is damaged is held; the package stays until somebody says that it is meant to go."""
    with volume() as device, Machine([device], [PACKAGES]) as m:
        kind.prepare(m)
        subprocess.run(["mkfs.ext4", "-q", "-b", "4096", device], check=True)
        subprocess.run(["dd", "if=/dev/zero", f"of={device}", "bs=4096", "count=1", "conv=notrunc,fsync"], check=True, stderr=subprocess.DEVNULL)
        kind.install(m)
        guard(m, device)
        m.until("the guard is held", lambda: [g["gate"] for g in status(m)["guards"]] == ["held"])
        before = m.sh(f"sha256sum {device}")
        agent = m.show("volhold.service", "MainPID")

        refused = kind.remove(m)
        assert refused.returncode != 0 and "volhold is not removed: a guard is held" in refused.stdout + refused.stderr, refused
        assert kind.installed(m) and m.show("volhold.service", "MainPID") == agent
        assert m.run(f"mkfs.ext4 -F -q {device}").returncode != 0, "the claim is still there"

        # An upgrade goes through, and the claim with it.
        kind.install(m, newer=True)
        m.until("the new agent holds it", lambda: m.show("volhold.service", "MainPID") not in (agent, "0")
                and [g["gate"] for g in status(m)["guards"]] == ["held"])
        assert m.run(f"mkfs.ext4 -F -q {device}").returncode != 0, "the claim went with the upgrade"

        removed = kind.remove(m, REMOVE_HELD_VOLHOLD="yes")
        assert removed.returncode == 0 and not kind.installed(m), removed
        assert m.sh(f"sha256sum {device}") == before, "the volume was written to"


def needrestart(_kind):
    """A library under a waiting gate is replaced: needrestart wants to restart others, not the gate."""
    with volume() as device, Machine([device], [PACKAGES]) as m:
        subprocess.run(["mkfs.ext4", "-q", "-b", "4096", device], check=True)
        subprocess.run(["dd", "if=/dev/zero", f"of={device}", "bs=4096", "count=1", "conv=notrunc,fsync"], check=True, stderr=subprocess.DEVNULL)
        Deb().install(m)
        guard(m, device)
        m.sh("systemctl start --no-block etcd.service")
        m.until("the gate waits", lambda: m.show("volhold-gate@main.service", "SubState") == "start")
        m.sh("lib=$(readlink -f /lib/x86_64-linux-gnu/libblkid.so.1) && cp -a $lib $lib.new && mv $lib.new $lib")
        gate, agent = m.show("volhold-gate@main.service", "MainPID"), m.show("volhold.service", "MainPID")
        m.sh("needrestart -q -r a")
        # The agent uses the library too: that it was restarted shows that needrestart saw the change at all.
        assert m.show("volhold.service", "MainPID") != agent, m.sh("needrestart -b -v -r l 2>&1")
        assert m.show("volhold-gate@main.service", "MainPID") == gate, "the gate was restarted"
        assert m.show("volhold-gate@main.service", "SubState") == "start"


SCENARIOS = [
    ("deb: install, upgrade, downgrade, remove, purge while etcd runs", lambda: life(Deb(), purge=True)),
    ("deb: a held guard keeps the package, an upgrade keeps the claim", lambda: held(Deb())),
    ("deb: needrestart leaves a waiting gate alone", lambda: needrestart(Deb())),
    ("rpm: install, upgrade, downgrade, remove while etcd runs", lambda: life(Rpm(), purge=False)),
    ("rpm: a held guard keeps the package, an upgrade keeps the claim", lambda: held(Rpm())),
]


def main():
    failed = 0
    wanted = sys.argv[2:]
    chosen = [(name, run) for name, run in SCENARIOS if not wanted or any(word in name for word in wanted)]
    for name, scenario in chosen:
        began = time.monotonic()
        try:
            scenario()
            print(f"ok      {name} ({time.monotonic() - began:.0f} s)", flush=True)
        except Exception:
            failed += 1
            traceback.print_exc()
            print(f"FAILED  {name} ({time.monotonic() - began:.0f} s)", flush=True)
    print(f"{len(chosen) - failed} passed, {failed} failed")
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
