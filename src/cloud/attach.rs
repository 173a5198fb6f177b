//! The way of one volume to this instance, step by step. Pure: what EC2 says goes in, what is to be done next comes out.
//!
//! ```text
//! creating ─► available ─► (AttachVolume) ─► attaching ─► attached: here
//!                 ▲
//!   attached elsewhere: detaching, or its instance is ending ─┘     its instance runs: hold
//! ```
//!
//! AttachVolume is not idempotent and its answer can be lost, so no answer of it is believed: after asking, only a look
//! counts. Nothing here ever detaches.

use super::code::{ApiError, Code};
use super::ec2::{AttachState, Attached, Here, Instance, InstanceId, InstanceState, Volume, VolumeState};
use super::names;
use super::select::state_in_words;
use crate::model::{Reason, ReasonCode, VolumeId};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

/// From then on an attachment that does not come to its end is a trouble with a name of its own.
pub const STUCK: Duration = Duration::from_secs(90);
/// How long EC2's views may lag behind an AttachVolume that went well.
const LAG: Duration = Duration::from_secs(10);

/// What is remembered from look to look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attempts {
    /// The volume that stage and question are about.
    volume: Option<VolumeId>,
    /// Names that were asked for and did not lead to an attachment.
    failed: BTreeSet<String>,
    /// The name that was asked for last, and when.
    asked: Option<(String, Duration)>,
    /// Since when the volume is seen in the stage in which it is.
    stage: Option<(Stage, Duration)>,
}

/// Where a volume is on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stage {
    Creating,
    Coming(AttachState),
    Leaving(InstanceId),
    NoDevice,
}

/// One look.
#[derive(Debug, Clone, Copy)]
pub struct Look<'a> {
    pub volume: &'a Volume,
    pub here: &'a Here,
    /// Both only as far as they were asked for; `Some(None)`: EC2 knows no such instance.
    pub holder: Option<Option<&'a Instance>>,
    pub own: Option<&'a Instance>,
    /// Where to begin among the device names.
    pub start: usize,
    /// Of a clock that never goes back.
    pub now: Duration,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// EC2 says that it is attached here, under this name.
    Here {
        device: Option<String>,
        warnings: Vec<Reason>,
    },
    /// The state of this instance decides.
    NeedHolder(InstanceId),
    /// The device names that are in use here are needed.
    NeedOwn,
    Attach {
        device: String,
    },
    Wait(Reason),
    Hold(Reason),
}

impl Attempts {
    /// What comes next is about this volume. Names that failed are this instance's, whatever was to be attached.
    pub fn turn_to(&mut self, volume: &VolumeId) {
        if self.volume.as_ref() != Some(volume) {
            self.volume = Some(volume.clone());
            self.asked = None;
            self.stage = None;
        }
    }

    /// What follows from a look.
    pub fn next(&mut self, look: &Look<'_>) -> Next {
        let volume = look.volume;
        let id = &volume.id;
        if volume.multi_attach || volume.attachments.len() > 1 {
            let holders: Vec<&str> = volume.attachments.iter().map(|attached| attached.instance.0.as_str()).collect();
            let with = if holders.is_empty() { String::new() } else { format!(", and is by {}", holders.join(", ")) };
            return Next::Hold(Reason::new(
                ReasonCode::MultiAttach,
                format!(
                    "{id} may be attached to several instances at once{with}: two kernels on one ext4 or XFS destroy it, so it \
                     is not used; switch multi-attach off, or use another volume"
                ),
            ));
        }
        if volume.zone != look.here.zone {
            return Next::Hold(refused(
                Code::ZoneMismatch,
                format!("{id} lies in {}, and this instance in {}", volume.zone, look.here.zone),
            ));
        }
        match volume.attachments.first() {
            Some(attached) if attached.instance == look.here.instance => self.coming(look, attached),
            Some(attached) => self.leaving(look, attached),
            None => self.free(look),
        }
    }

    fn coming(&mut self, look: &Look<'_>, attached: &Attached) -> Next {
        let id = &look.volume.id;
        let since = attached.since.map_or(String::new(), |since| format!(" since {since}"));
        match &attached.state {
            AttachState::Attached => {
                // Until the device is seen the clock runs.
                self.asked = None;
                let mut warnings = Vec::new();
                if attached.delete_on_termination {
                    warnings.push(Reason::new(
                        ReasonCode::DeletedWithInstance,
                        format!(
                            "EC2 deletes {id} when this instance ends (DeleteOnTermination): switch it off for this attachment"
                        ),
                    ));
                }
                Next::Here { device: attached.device.clone(), warnings }
            }
            state @ (AttachState::Attaching | AttachState::Busy | AttachState::Detaching | AttachState::Other(_)) => {
                let stuck = self.in_stage(Stage::Coming(state.clone()), look.now);
                if stuck {
                    // Should it fail in the end, this name is not asked for again.
                    if let Some(device) = &attached.device {
                        self.failed.insert(device.clone());
                    }
                    let what = match state {
                        AttachState::Attaching => "a device name that is stuck, or a hypervisor that lags",
                        AttachState::Busy => "somebody asked to detach it while this machine used it",
                        AttachState::Detaching => "somebody is detaching it from this machine",
                        AttachState::Attached | AttachState::Other(_) => "a state that volhold does not know",
                    };
                    return Next::Hold(Reason::new(
                        ReasonCode::AttachStuck,
                        format!(
                            "{id} is `{state}` to this instance{since}, for more than {} s: {what}; volhold never detaches",
                            STUCK.as_secs()
                        ),
                    ));
                }
                Next::Wait(Reason::new(ReasonCode::AttachStuck, format!("{id} is `{state}` to this instance{since}")))
            }
        }
    }

    fn leaving(&mut self, look: &Look<'_>, attached: &Attached) -> Next {
        let id = &look.volume.id;
        let holder = &attached.instance;
        let Some(instance) = look.holder else { return Next::NeedHolder(holder.clone()) };
        let since = attached.since.map_or(String::new(), |since| format!(" since {since}"));
        let (word, ending) = match instance.map(|instance| &instance.state) {
            Some(state) => (
                state.to_string(),
                match state {
                    InstanceState::Stopping | InstanceState::ShuttingDown | InstanceState::Terminated => true,
                    InstanceState::Pending
                    | InstanceState::Running
                    | InstanceState::Stopped
                    | InstanceState::Other(_) => false,
                },
            ),
            None => ("not known to EC2 any more".to_owned(), true),
        };
        let going = match attached.state {
            AttachState::Detaching | AttachState::Busy => true,
            AttachState::Attaching | AttachState::Attached | AttachState::Other(_) => false,
        };
        let detail = json!({ "holder": holder.0, "instance_state": word, "attachment": attached.state.to_string(), "since": attached.since });
        let who = format!("{id} is `{}` to {holder}{since}, which is {word}", attached.state);
        if !ending && !going {
            self.stage = None;
            let message = format!("{who}: it is not taken from there, volhold never detaches");
            return Next::Hold(Reason::new(ReasonCode::VolumeElsewhere, message).with_detail(detail));
        }
        if self.in_stage(Stage::Leaving(holder.clone()), look.now) {
            let message = format!(
                "{who}, and does not let it go for more than {} s; volhold goes on looking, and never detaches",
                STUCK.as_secs()
            );
            return Next::Hold(Reason::new(ReasonCode::AttachStuck, message).with_detail(detail));
        }
        Next::Wait(
            Reason::new(ReasonCode::VolumeElsewhere, format!("{who}: waits until it lets go")).with_detail(detail),
        )
    }

    fn free(&mut self, look: &Look<'_>) -> Next {
        let id = &look.volume.id;
        match &look.volume.state {
            VolumeState::Creating => {
                if self.in_stage(Stage::Creating, look.now) {
                    let message = format!("{id} is still being created after more than {} s", STUCK.as_secs());
                    return Next::Hold(Reason::new(ReasonCode::AttachStuck, message));
                }
                Next::Wait(Reason::new(ReasonCode::AttachStuck, format!("{id} is still being created")))
            }
            VolumeState::Deleting | VolumeState::Deleted => Next::Hold(Reason::new(
                ReasonCode::VolumeNotFound,
                format!("{id} is being deleted, or is deleted; nothing was formatted or mounted in its place"),
            )),
            state @ (VolumeState::Error | VolumeState::Other(_)) => Next::Hold(refused(
                Code::IncorrectState,
                format!("{id} is in the state `{}`, in which it cannot be attached", state_in_words(state)),
            )),
            // EC2's views lag: in use by nobody is on its way to one of the two.
            VolumeState::InUse => Next::Wait(Reason::new(
                ReasonCode::AttachStuck,
                format!("{id} is in use, and EC2 does not say yet by whom"),
            )),
            VolumeState::Available => self.ask(look),
        }
    }

    fn ask(&mut self, look: &Look<'_>) -> Next {
        let id = &look.volume.id;
        self.stage = None;
        if let Some((device, at)) = &self.asked {
            if look.now.saturating_sub(*at) < LAG {
                let message = format!("{id} was asked for as {device}, and EC2 does not show it yet");
                return Next::Wait(Reason::new(ReasonCode::AttachStuck, message));
            }
            self.failed.insert(device.clone());
            self.asked = None;
        }
        let Some(own) = look.own else { return Next::NeedOwn };
        match names::free(&own.devices, &self.failed, look.start) {
            Some(device) => Next::Attach { device },
            None => Next::Hold(Reason::new(
                ReasonCode::AttachStuck,
                format!(
                    "{id} cannot be attached: every device name from /dev/sdf to /dev/sdp is in use here or has failed ({})",
                    self.failed.iter().cloned().collect::<Vec<_>>().join(", ")
                ),
            )),
        }
    }

    /// AttachVolume was asked for; what it answered is only a hint. `None`: look (again, and soon).
    pub fn asked(
        &mut self,
        volume: &Volume,
        device: String,
        answer: Result<(), &ApiError>,
        now: Duration,
    ) -> Option<Next> {
        match answer {
            Ok(()) => {
                self.asked = Some((device, now));
                None
            }
            Err(error) => match error.code {
                // Done or not: a look tells.
                Code::NoAnswer | Code::Unavailable => {
                    self.asked = Some((device, now));
                    None
                }
                Code::VolumeInUse | Code::IncorrectState => None,
                Code::InvalidParameter => {
                    self.failed.insert(device);
                    None
                }
                Code::Throttled | Code::NoCredentials | Code::NoMetadata => {
                    Some(Next::Wait(error.reason(&volume.id.0)))
                }
                Code::VolumeNotFound
                | Code::ZoneMismatch
                | Code::AttachmentLimit
                | Code::TagLimit
                | Code::Encryption
                | Code::InstanceNotFound
                | Code::Unsupported
                | Code::Unauthorized
                | Code::Credentials
                | Code::Account
                | Code::Unknown
                | Code::NotBuilt => Some(Next::Hold(error.reason(&volume.id.0))),
            },
        }
    }

    /// EC2 says that it is attached, and no device of this machine is it.
    pub fn no_device(&mut self, volume: &str, now: Duration) -> Next {
        if self.in_stage(Stage::NoDevice, now) {
            return Next::Hold(Reason::new(
                ReasonCode::AttachStuck,
                format!(
                    "{volume} is attached to this instance, EC2 says, and for more than {} s no disk of this machine is it",
                    STUCK.as_secs()
                ),
            ));
        }
        let message = format!("{volume} is attached to this instance, EC2 says; its device has not appeared yet");
        Next::Wait(Reason::new(ReasonCode::AttachStuck, message))
    }

    /// Enters the stage, or stays in it. Is it for too long?
    fn in_stage(&mut self, stage: Stage, now: Duration) -> bool {
        match &self.stage {
            Some((known, since)) if *known == stage => now.saturating_sub(*since) >= STUCK,
            Some(_) | None => {
                self.stage = Some((stage, now));
                false
            }
        }
    }
}

fn refused(code: Code, what: String) -> Reason {
    Reason::new(ReasonCode::AttachRefused, format!("{what}: {}", code.remedy()))
}

#[cfg(test)]
mod tests;
