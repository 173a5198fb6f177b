//! The kinds of masters on which etcd is known to live, and what holds it back there.

use std::fmt;
use std::str::FromStr;

/// A kind of master.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preset {
    /// etcd as a unit of its own, as Debian, RHEL and kubespray have it.
    EtcdService,
    /// etcd as a static pod that kubeadm writes.
    Kubeadm,
    /// etcd-manager as a static pod, which mounts by itself.
    Kops,
    /// etcd inside of `k3s server`.
    K3s,
    /// etcd as a static pod that `rke2 server` starts.
    Rke2,
    /// etcd of kube-aws, in rkt.
    KubeAws,
}

impl Preset {
    pub const ALL: &'static [Preset] =
        &[Preset::EtcdService, Preset::Kubeadm, Preset::Kops, Preset::K3s, Preset::Rke2, Preset::KubeAws];

    pub fn as_str(self) -> &'static str {
        match self {
            Preset::EtcdService => "etcd-service",
            Preset::Kubeadm => "kubeadm",
            Preset::Kops => "kops",
            Preset::K3s => "k3s",
            Preset::Rke2 => "rke2",
            Preset::KubeAws => "kube-aws",
        }
    }

    /// The unit whose start waits.
    pub fn unit(self) -> &'static str {
        match self {
            Preset::EtcdService => "etcd.service",
            Preset::Kubeadm | Preset::Kops => "kubelet.service",
            Preset::K3s => "k3s.service",
            Preset::Rke2 => "rke2-server.service",
            Preset::KubeAws => "etcd-member.service",
        }
    }

    /// What the unit waits for.
    pub fn waits_for(self) -> WaitsFor {
        match self {
            // etcd-manager would mount a held volume's sibling by itself: kubelet may start once every guard is decided, and
            // the claim keeps held volumes from it.
            Preset::Kops => WaitsFor::Decision,
            Preset::EtcdService | Preset::Kubeadm | Preset::K3s | Preset::Rke2 | Preset::KubeAws => WaitsFor::OpenGate,
        }
    }

    /// May the data be read once more in the moment before the unit starts? Only where nothing runs on it then: a kubelet is
    /// restarted while etcd's container goes on.
    pub fn checks_at_start(self) -> bool {
        match self {
            Preset::EtcdService | Preset::K3s | Preset::Rke2 | Preset::KubeAws => true,
            Preset::Kubeadm | Preset::Kops => false,
        }
    }

    /// etcd is the unit's main process, and runs as the unit's user.
    pub fn is_etcd_itself(self) -> bool {
        match self {
            Preset::EtcdService => true,
            Preset::Kubeadm | Preset::Kops | Preset::K3s | Preset::Rke2 | Preset::KubeAws => false,
        }
    }
}

/// What a unit waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitsFor {
    /// The gate is open.
    OpenGate,
    /// The guard is decided: open or held.
    Decision,
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Preset {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || Preset::ALL.iter().map(|preset| preset.as_str()).collect::<Vec<_>>().join(", ");
        let found = Preset::ALL.iter().find(|preset| preset.as_str() == text).copied();
        found.ok_or_else(|| format!("`{text}` is no preset; known: {}", known()))
    }
}
