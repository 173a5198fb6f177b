//! What of this guard is remembered in the tags of its volume. Wanted here, written by a task that nobody waits for.

use super::Driver;
use crate::agent::machine::State;
use crate::cloud::Provider;
use crate::cloud::witness::writer::{Wanted, Writer};
use crate::model::{Fact, Mode, Witness};

impl Driver {
    /// These facts tell whose data it is: then the tags are written soon.
    pub(super) fn note_news(&mut self, facts: &[Fact]) {
        self.news |= facts.iter().any(|fact| match fact {
            Fact::Formatted { .. } | Fact::FreshAllowed { .. } | Fact::Pinned { .. } => true,
            Fact::FormatIntent { .. }
            | Fact::HoldsData { .. }
            | Fact::IdentityChanged { .. }
            | Fact::Adopted { .. }
            | Fact::Released { .. }
            | Fact::Retried
            | Fact::Unpinned { .. }
            | Fact::Ordered { .. }
            | Fact::Carried { .. }
            | Fact::Enabled { .. }
            | Fact::Disabled
            | Fact::Bypassed { .. }
            | Fact::Fsck { .. }
            | Fact::NotChecked { .. }
            | Fact::Snapshot { .. }
            | Fact::Grow { .. }
            | Fact::Restarted { .. }
            | Fact::Halted { .. }
            | Fact::Published { .. }
            | Fact::Decided { .. } => false,
        });
    }

    /// The members that have run, as the data dir in use names them.
    fn have_run(&self) -> Vec<String> {
        let reading = self.guard.start_evidence().and_then(|evidence| evidence.volume.seen());
        let selected = reading.and_then(|reading| {
            let selected = &reading.selected.as_ref()?.path;
            reading.data_dirs.iter().find(|dir| dir.path == *selected)?.fingerprint.as_ref()
        });
        let members = selected.map_or(&[][..], |print| &print.members);
        let ran = members.iter().filter(|member| !member.client_urls.is_empty() && !member.name.is_empty());
        ran.map(|member| member.name.clone()).collect()
    }

    /// Of an open gate whose volume is one of EC2's.
    pub(super) fn remember(&mut self) {
        let ours = match (&self.provider, &self.guard.state, self.config.mode) {
            (Provider::Ebs(_), State::Open { doubts, .. }, Mode::Enforce) => doubts.is_empty(),
            (Provider::Ebs(_) | Provider::Local(_), _, Mode::Enforce | Mode::Observe) => false,
        };
        if !self.config.witness {
            self.witness = None;
            return;
        }
        let Some((records, _)) = self.marked.as_ref().filter(|_| ours) else { return };
        let fs_uuid = self.fs_uuid();
        let made_here = fs_uuid.is_some_and(|uuid| records.formatted.contains(&uuid));
        let pin = records.pin.as_ref();
        let of_pin = |ids| pin.is_none_or(|pin| ids == (Some(pin.cluster_id), Some(pin.member_id)));
        let witness = Witness {
            volume: None,
            fs_uuid,
            // Only who made it knows; on any other instance that tag stays as it is.
            formatted: records.formatted_at.filter(|_| made_here).map(|at| (at, String::new())),
            cluster_id: pin.map(|pin| pin.cluster_id),
            member_id: pin.map(|pin| pin.member_id),
            data_dir: pin.map(|pin| pin.data_dir.clone()),
            ran: self.have_run(),
            mark: records.high_water.clone().filter(|mark| of_pin((mark.cluster_id, mark.member_id))),
            seen_at: None,
            holder: None,
            not_understood: Vec::new(),
        };
        let wanted = Wanted { volume: self.volume_id(), witness, news: self.news, guard: self.config.name.to_string() };
        let writer = self.witness.get_or_insert_with(|| {
            let (seed, _) = uuid::Uuid::new_v4().as_u64_pair();
            Writer::start(self.hub.clone(), seed)
        });
        writer.want(wanted);
    }
}

/// Until it stands otherwise with the tags; for ever where none are written.
pub(super) async fn told(writer: &mut Option<Writer>) {
    match writer {
        Some(writer) => writer.news().await,
        None => std::future::pending().await,
    }
}
