//! A guard that opened after kubelet had started etcd-manager: that container has a copy of the mounts from before, and does not
//! see the volume until it is started anew. It is told, and by policy that one container is.

use super::{Driver, SHORT, blocking};
use crate::act::restart;
use crate::agent::machine::State;
use crate::cloud::Provider;
use crate::cloud::kops::PREFIX;
use crate::device::blind::{self, Blind};
use crate::fault::fault_point;
use crate::model::{DeviceSpec, EbsSpec, Fact, Mode, Reason, ReasonCode};

/// The process of kops' `etcd-manager` image. Its command line names the tag of its volumes (kops
/// nodeup/pkg/model/components/etcdmanager, `--volume-tag=k8s.io/etcd/main`).
const MANAGER: &str = "etcd-manager";

/// More restarts than this of one agent are not tried: whatever keeps the new container from seeing the volume, another one will
/// not see it either.
const RESTARTS: usize = 3;

/// What is to be done with one that does not see the volume, where the configuration lets volhold end it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    End,
    /// It was asked to.
    Ends,
    TooOften,
}

fn next(ended: &[Blind], this: Blind) -> Next {
    if ended.contains(&this) {
        Next::Ends
    } else if ended.len() >= RESTARTS {
        Next::TooOften
    } else {
        Next::End
    }
}

impl Driver {
    /// Looks whether an etcd-manager that is there for this volume sees it.
    pub(super) async fn attend_to_manager(&mut self) {
        let before = self.unseen.clone();
        self.look_at_manager().await;
        if self.unseen != before {
            self.report();
        }
    }

    async fn look_at_manager(&mut self) {
        let devnum = match (&self.guard.state, self.config.mode, self.guard.device()) {
            (State::Open { .. }, Mode::Enforce, Some(facts)) => facts.devnum,
            (_, Mode::Enforce | Mode::Observe, _) => {
                self.unseen = None;
                return;
            }
        };
        // Whose container it is has to be known: another etcd's is none of this guard's.
        let Some(tag) = self.tag() else { return };
        let looked = blocking(SHORT, move || blind::to(&blind::proc_of_process(), MANAGER, &tag, devnum)).await;
        // What cannot be looked at is no news.
        let Ok(Ok(blind)) = looked else { return };
        let Some(first) = blind.first().copied() else {
            self.unseen = None;
            return;
        };
        if self.unseen.is_none() {
            tracing::warn!(event = "mount.unseen", guard = %self.config.name, pid = first.pid, "{MANAGER} does not see the volume");
        }
        // More than one is more than kops has: none is touched.
        let next = next(&self.ended, first);
        if self.config.restart && next == Next::End && blind.len() == 1 {
            self.ended.push(first);
            match self.end(first).await {
                Ok(()) => {
                    tracing::info!(event = "manager.restarted", guard = %self.config.name, pid = first.pid, "asked {MANAGER} to end, so that kubelet starts it anew");
                }
                Err(why) => {
                    tracing::error!(event = "manager.stays", guard = %self.config.name, pid = first.pid, "{MANAGER} was not ended: {why}");
                }
            }
        }
        let message = format!(
            "{MANAGER} (process {}) was started before {} was mounted and does not see it: {}",
            first.pid,
            self.volume_id(),
            match next {
                Next::TooOften => format!(
                    "{RESTARTS} before it were ended for that already, and no more are; see how its container mounts the volume"
                ),
                Next::End | Next::Ends => "it has to be started anew".to_owned(),
            }
        );
        self.unseen = Some(Reason::new(ReasonCode::MountUnseen, message));
    }

    /// The tag by which its command line is told from that of another etcd of the same master: as configured, or as EC2 said.
    /// `None`: nothing tells.
    fn tag(&self) -> Option<String> {
        let configured = match &self.config.device {
            DeviceSpec::Ebs(EbsSpec::Tags(tags)) => tags.iter().map(|tag| &tag.key).find(|key| key.starts_with(PREFIX)),
            DeviceSpec::Ebs(EbsSpec::Id(_)) | DeviceSpec::Path(_) | DeviceSpec::Uuid(_) | DeviceSpec::Label(_) => None,
        };
        match (configured, &self.provider) {
            (Some(key), _) => Some(key.clone()),
            (None, Provider::Ebs(ebs)) => ebs.etcd_key().map(str::to_owned),
            (None, Provider::Local(_)) => None,
        }
    }

    /// On record before it happens.
    async fn end(&self, process: Blind) -> Result<(), String> {
        let fact = Fact::Restarted { what: MANAGER.to_owned(), pid: process.pid };
        self.keep(&self.volume_id(), self.fs_uuid(), vec![fact]).await.map_err(|reason| reason.message)?;
        fault_point("before-restart");
        restart::end(process).map_err(|error| crate::agent::chain(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_ended_once_and_not_one_after_the_other_for_ever() {
        let process = |pid| Blind { pid, started: 7 };
        let mut ended = Vec::new();
        for pid in 1..=3 {
            assert_eq!(next(&ended, process(pid)), Next::End, "{pid}");
            ended.push(process(pid));
            assert_eq!(next(&ended, process(pid)), Next::Ends, "{pid}");
        }
        assert_eq!(next(&ended, process(4)), Next::TooOften);
        assert_eq!(next(&ended, process(3)), Next::Ends);
    }
}
