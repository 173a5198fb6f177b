//! What `volhold enable` writes for a guard, as texts. Pure: the same guard gives the same files.
//!
//! ```text
//! /etc/systemd/system/UNIT.d/50-volhold-NAME.conf          etcd's unit waits for the gate
//! /etc/volhold/kubeadm/etcd50-NAME+strategic.yaml          kubeadm: the pod waits for the ready file
//! /etc/systemd/system/volhold-decided@NAME.service         kops: kubelet waits until the guard is decided
//! /etc/volhold/conf.d/50-enable-NAME.toml                  the guard enforces
//! ```
//!
//! and for an image, instead of the last one:
//!
//! ```text
//! /etc/systemd/system/volhold-first-boot@NAME.service                      tests the layers, then writes the last one
//! /etc/systemd/system/volhold-gate@NAME.service.d/50-volhold-first-boot.conf
//! ```

use super::preset::WaitsFor;
use super::{Preset, mark, units};
use crate::model::GuardName;
use std::path::{Path, PathBuf};

/// Where the packages put the program; units name it in full.
pub const PROGRAM: &str = "/usr/bin/volhold";
/// The directory for `kubeadm --patches`.
pub const KUBEADM_PATCHES: &str = "/etc/volhold/kubeadm";
/// Where the ready files are unless configured otherwise.
pub const READY: &str = "/run/volhold/open";
const UNITS: &str = "/etc/systemd/system";
const CONF_D: &str = "/etc/volhold/conf.d";

/// A file that is to be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// Absolute; below the root directory that it is written to.
    pub path: PathBuf,
    /// With the mark.
    pub text: String,
    /// What it is for, after "writes PATH: ".
    pub purpose: &'static str,
}

/// What to build in.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    pub preset: Preset,
    pub guard: &'a GuardName,
    /// Where volumes of this guard are mounted.
    pub publish: &'a [PathBuf],
    /// The ready file.
    pub ready: &'a Path,
}

impl Wanted<'_> {
    fn planned(&self, path: PathBuf, purpose: &'static str, body: &str) -> Planned {
        Planned { path, text: mark::marked(self.preset, self.guard, body), purpose }
    }

    /// Everything that makes the start wait.
    pub fn waiting(&self) -> Vec<Planned> {
        let mut files = vec![self.planned(
            drop_in_path(self.preset, self.guard),
            "its start waits for the gate",
            &match self.preset.waits_for() {
                WaitsFor::OpenGate => self.unit_waits_for_gate(),
                WaitsFor::Decision => self.unit_waits_for_decision(),
            },
        )];
        match self.preset.waits_for() {
            WaitsFor::OpenGate => {}
            WaitsFor::Decision => {
                let purpose = "active once the guard is open or held";
                files.push(self.planned(unit_path(&decided(self.guard)), purpose, &self.decided_unit()));
            }
        }
        match self.preset {
            Preset::Kubeadm => {
                let purpose = "the etcd pod waits for the ready file";
                files.push(self.planned(kubeadm_patch(self.guard), purpose, &self.pod_patch()));
            }
            Preset::EtcdService | Preset::Kops | Preset::K3s | Preset::Rke2 | Preset::KubeAws => {}
        }
        files
    }

    /// The configuration layer that switches the guard to enforce.
    pub fn enforcing(&self) -> Planned {
        let body = format!("[[guard]]\nname = \"{}\"\nmode = \"enforce\"\n", self.guard);
        self.planned(enforce_path(self.guard), "the guard enforces", &body)
    }

    /// For an image: the check at first boot, which switches the guard to enforce once every layer holds.
    pub fn first_boot(&self) -> Vec<Planned> {
        let Wanted { preset, guard, .. } = self;
        let unit = first_boot(guard);
        let check = format!(
            "[Unit]\n\
             Description=volhold: test the layers of {guard}, then enforce\n\
             Documentation=man:volhold(8)\n\
             # Once the guard enforces there is nothing left to do, at this boot or a later one.\n\
             ConditionPathExists=!{}\n\
             # The agent's own layers are tested too. An order, no dependency: without an agent this says so and waits.\n\
             Wants=volhold.service\n\
             After=volhold.service\n\
             # Stopping it would stop the gate, and etcd behind it.\n\
             RefuseManualStop=yes\n\
             \n\
             [Service]\n\
             Type=oneshot\n\
             RemainAfterExit=yes\n\
             # While a layer does not hold it says which, in `systemctl status`, and tries again; etcd waits meanwhile.\n\
             TimeoutStartSec=infinity\n\
             NotifyAccess=all\n{}",
            enforce_path(guard).display(),
            to_the_end(&format!("enable --preset {preset} --first-boot {guard}"))
        );
        let gate = format!(
            "[Unit]\n\
             # Until the layers were tested once, the guard only observes: nothing may start behind it.\n\
             Requires={unit}\n\
             After={unit}\n"
        );
        vec![
            self.planned(unit_path(&unit), "tests the layers at first boot, then enforces", &check),
            self.planned(gate_drop_in(guard), "the gate waits for that test", &gate),
        ]
    }

    fn unit_waits_for_gate(&self) -> String {
        let gate = units::gate(self.guard);
        let mut text = format!(
            "[Unit]\n\
             # The start waits in systemd's queue until the gate is open; `systemctl status {gate}` says what for.\n\
             Requires={gate}\n\
             After={gate}\n"
        );
        text.push_str(&self.after_mounts());
        if self.preset.checks_at_start() {
            text.push_str(&format!(
                "\n[Service]\n\
                 # Once more before each start: a data dir that was wiped while etcd was down is seen without a reboot.\n\
                 ExecStartPre=+{PROGRAM} gate check {}\n",
                self.guard
            ));
        }
        text
    }

    fn unit_waits_for_decision(&self) -> String {
        let decided = decided(self.guard);
        format!(
            "[Unit]\n\
             # Until the guard is open or held: then its volume is mounted where etcd-manager looks, or claimed so that\n\
             # etcd-manager can neither mount nor format it. Other guards' etcds do not wait for this one's verdict.\n\
             Requires={decided}\n\
             After={decided}\n{}",
            self.after_mounts()
        )
    }

    fn after_mounts(&self) -> String {
        let mut text = "# Order only, for the way down: what runs on the volume stops before it is unmounted. BindsTo= would fail\n\
                        # the start at once where the volume is not mounted yet.\n"
            .to_owned();
        for at in self.publish {
            text.push_str(&format!("After={}\n", units::mount_unit(at)));
        }
        text
    }

    fn decided_unit(&self) -> String {
        let guard = self.guard;
        format!(
            "[Unit]\n\
             Description=volhold: {guard} is decided\n\
             Documentation=man:volhold(8)\n\
             # Nothing runs behind it once it is active, so nothing can be killed or restarted either.\n\
             RefuseManualStop=yes\n\
             \n\
             [Service]\n\
             Type=oneshot\n\
             RemainAfterExit=yes\n\
             TimeoutStartSec=infinity\n\
             NotifyAccess=all\n{}",
            to_the_end(&format!("wait --decided {guard}"))
        )
    }

    /// A patch for kubeadm's static pod (`kubeadm init --patches`). `type: Directory` alone would let an etcd start on the
    /// empty mountpoint; the ready file is looked at because the container mounts it: kubelet skips volumes that no container
    /// uses (kubernetes v1.29 pkg/kubelet/volumemanager, "Skipping unused volume").
    fn pod_patch(&self) -> String {
        let guard = self.guard;
        let ready = yaml(&self.ready.display().to_string());
        let volume = format!("volhold-gate-{guard}");
        // Names of volumes are DNS labels.
        let volume = yaml(volume.get(..63).unwrap_or(&volume).trim_end_matches('-'));
        format!(
            "apiVersion: v1\n\
             kind: Pod\n\
             metadata:\n  name: etcd\n  namespace: kube-system\n\
             spec:\n\
             \x20 containers:\n\
             \x20   - name: etcd\n\
             \x20     volumeMounts:\n\
             \x20       # Without this mount kubelet would not look whether the file is there.\n\
             \x20       - name: {volume}\n\
             \x20         mountPath: {ready}\n\
             \x20         readOnly: true\n\
             \x20 volumes:\n\
             \x20   - name: {volume}\n\
             \x20     hostPath:\n\
             \x20       path: {ready}\n\
             \x20       type: File\n\
             \x20   # kubeadm's own DirectoryOrCreate would make an empty data dir where the volume is missing.\n\
             \x20   - name: etcd-data\n\
             \x20     hostPath:\n\
             \x20       type: Directory\n"
        )
    }
}

/// The lines of a oneshot that start the program, as the gate's unit has them.
fn to_the_end(verb: &str) -> String {
    format!(
        "# One that is killed is followed by another: what is queued behind this unit would be lost with it. Only the last one's\n\
         # answer counts.\n\
         ExecStart=-{PROGRAM} {verb}\n\
         ExecStart=-{PROGRAM} {verb}\n\
         ExecStart={PROGRAM} {verb}\n"
    )
}

/// A double-quoted scalar of YAML 1.2; paths and names have no control characters (the configuration refuses them).
fn yaml(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The unit that is active once a guard is decided.
pub fn decided(guard: &GuardName) -> String {
    format!("volhold-decided@{guard}.service")
}

/// The unit that tests the layers at first boot.
pub fn first_boot(guard: &GuardName) -> String {
    format!("volhold-first-boot@{guard}.service")
}

/// The drop-in of the unit that waits.
pub fn drop_in_path(preset: Preset, guard: &GuardName) -> PathBuf {
    Path::new(UNITS).join(format!("{}.d", preset.unit())).join(format!("50-volhold-{guard}.conf"))
}

pub fn kubeadm_patch(guard: &GuardName) -> PathBuf {
    // target[suffix][+patchtype].extension (kubernetes v1.22 cmd/kubeadm/app/util/patches/patches.go): a suffix may hold
    // anything but dots and plus signs.
    Path::new(KUBEADM_PATCHES).join(format!("etcd50-{guard}+strategic.yaml"))
}

/// The configuration layer that switches a guard to enforce.
pub fn enforce_path(guard: &GuardName) -> PathBuf {
    Path::new(CONF_D).join(format!("50-enable-{guard}.toml"))
}

/// The file of the unit that tests the layers at first boot.
pub fn first_boot_path(guard: &GuardName) -> PathBuf {
    unit_path(&first_boot(guard))
}

fn unit_path(unit: &str) -> PathBuf {
    Path::new(UNITS).join(unit)
}

fn gate_drop_in(guard: &GuardName) -> PathBuf {
    Path::new(UNITS).join(format!("{}.d", units::gate(guard))).join("50-volhold-first-boot.conf")
}

/// Every place at which something may have been written for a guard, by whatever preset. The layer that enforces comes
/// first: what is taken away first is what could hold.
pub fn places(guard: &GuardName) -> Vec<PathBuf> {
    let mut places = vec![enforce_path(guard)];
    for preset in Preset::ALL {
        let place = drop_in_path(*preset, guard);
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places.extend([
        gate_drop_in(guard),
        unit_path(&first_boot(guard)),
        unit_path(&decided(guard)),
        kubeadm_patch(guard),
    ]);
    places
}

#[cfg(test)]
mod tests;
