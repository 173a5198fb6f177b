//! The device: found, claimed, read as bytes, secured, let go.

use super::{Driver, LOOK, SHORT, Stuck, blocking};
use crate::act::seal;
use crate::agent::clock::boot_millis;
use crate::agent::evidence::known;
use crate::agent::find;
use crate::agent::find::Sought;
use crate::agent::machine::Event;
use crate::cloud::{Brought, May, Provider, VolumeProvider};
use crate::device::Device;
use crate::fault::fault_point;
use crate::gate::{claims, notify};
use crate::model::{
    BootMillis, DeviceReading, DeviceSpec, GuardStatus, Mode, Observed, Progress, Reason, ReasonCode, Why,
    names_no_place,
};
use crate::probe::ProbeRequest;
use crate::worker::{self, Deadline};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

impl Driver {
    pub(super) async fn find(&mut self) -> Event {
        self.drop_mount().await;
        self.filesystem = None;
        self.seal_early().await;
        let volumes = match &self.whereabouts {
            Some(whereabouts) => vec![whereabouts.volume.clone()],
            None => {
                let (spec, memory) = (self.config.device.clone(), self.memory.clone());
                match blocking(SHORT, move || find::volumes_of(&spec, &memory)).await {
                    Ok(volumes) => volumes,
                    Err(stuck) => return Event::NotFound(stuck.reason("reading the node's ledger")),
                }
            }
        };
        let sought = Sought {
            spec: self.config.device.clone(),
            volumes,
            attached_as: self.whereabouts.as_ref().and_then(|whereabouts| whereabouts.attached_as.clone()),
            mode: self.config.mode,
            publish: self.config.publish.clone(),
            run: self.run.clone(),
            guard: self.config.name.clone(),
            memory: self.memory.clone(),
        };
        let device = self.device.take();
        match blocking(SHORT, move || find::find(&sought, device)).await {
            Ok((device, outcome)) => {
                self.device = device;
                match outcome {
                    Ok(found) => {
                        fault_point("after-find");
                        self.mounted = found.mounted.clone();
                        let node = std::path::Path::new(&found.facts.node);
                        self.rounds.device(node.file_name().map(|name| name.to_string_lossy().into_owned()));
                        Event::Found(Box::new(known(&self.memory, &self.provider, found).await))
                    }
                    Err(reason) => {
                        self.rounds.device(None);
                        if self.may_be_brought(&reason) { Event::NotHere } else { Event::NotFound(reason) }
                    }
                }
            }
            Err(stuck) => Event::NotFound(stuck.reason("looking for the device")),
        }
    }

    /// No disk of this machine is the volume, and there is somebody to ask for it. A node that has had several volumes for the
    /// guard, and sees more than one of them, asks which it is.
    fn may_be_brought(&self, reason: &Reason) -> bool {
        let not_here = match reason.code {
            ReasonCode::DeviceMissing => true,
            ReasonCode::VolumeAmbiguous => self.whereabouts.is_none(),
            _other => false,
        };
        match &self.config.device {
            DeviceSpec::Ebs(_) => not_here,
            DeviceSpec::Path(_) | DeviceSpec::Uuid(_) | DeviceSpec::Label(_) => false,
        }
    }

    /// Asks the provider for the volume. What EC2 says of a volume is a place to look at, never the device.
    pub(super) async fn bring(&mut self) -> Event {
        let may = match self.config.mode {
            Mode::Enforce => May::Attach,
            Mode::Observe => May::Look,
        };
        match self.provider.bring(may).await {
            Brought::Here(whereabouts) => {
                for warning in &whereabouts.warnings {
                    tracing::warn!(event = "ec2.warning", guard = %self.config.name, code = %warning.code, "{}", warning.message);
                }
                self.provider_warnings = whereabouts.warnings.clone();
                self.whereabouts = Some(whereabouts);
                Event::Brought
            }
            Brought::Waits(reason) => Event::Waits(reason),
            Brought::Refused(reason) => {
                // What was selected may not be what is selected next.
                self.whereabouts = None;
                Event::NotFound(reason)
            }
        }
    }

    /// What only the provider knows, asked where it decides: on a device without a filesystem.
    pub(super) async fn ask_provider(&mut self, reading: &DeviceReading) -> Option<Event> {
        let facts = self.guard.device()?.clone();
        match (&mut self.provider, &reading.filesystem) {
            (Provider::Ebs(ebs), None) => Some(Event::Known(Box::new(ebs.knowledge(&facts).await))),
            (Provider::Ebs(_), Some(_)) | (Provider::Local(_), _) => None,
        }
    }

    /// From the first look on nothing can be written where the volume will be mounted: a static pod asks no gate and would
    /// start an etcd on the root disk, also while the volume is held or missing. Publishing seals again and insists.
    pub(super) async fn seal_early(&self) {
        if self.config.mode == Mode::Observe {
            return;
        }
        let places = self.places();
        // Which volume it is, and so the place, may be known only later.
        for at in places.paths().filter(|at| !names_no_place(at)).map(std::path::Path::to_owned).collect::<Vec<_>>() {
            match blocking(SHORT, move || seal::seal(&at)).await {
                Ok(Ok(_sealed)) => {}
                Ok(Err(error)) => {
                    tracing::debug!(event = "seal.early", guard = %self.config.name, error = %crate::agent::chain(&error), "not sealed yet");
                }
                Err(stuck) => {
                    tracing::warn!(event = "seal.stuck", guard = %self.config.name, "{}", stuck.why("sealing").detail());
                }
            }
        }
    }

    pub(super) async fn claim(&mut self) -> Event {
        let outcome = self
            .with_device(SHORT, |device| {
                if device.claimed() {
                    return Ok(());
                }
                device.claim().map_err(|error| error.reason())
            })
            .await;
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(stuck) => Err(stuck.reason("claiming the device")),
        };
        if outcome.is_ok() {
            self.store_claim();
            fault_point("after-claim");
        }
        Event::Claimed(outcome)
    }

    /// Lets systemd keep the claim while the agent is restarted.
    pub(super) fn store_claim(&self) {
        if let Some(fd) = self.device.as_ref().and_then(Device::claim_fd) {
            notify::store(&self.config.name, fd);
        }
    }

    /// The copy in systemd's store is a claim too: whoever needs the device needs it gone.
    pub(super) async fn unstore_claim(&self) {
        let (run, name) = (self.run.clone(), self.config.name.clone());
        // Who keeps a copy and does not answer is told in the log by then.
        let _gone = blocking(Duration::from_secs(15), move || {
            let kept_by_waiters = !claims::take_back(&run, &name);
            notify::unstore(&name) && !kept_by_waiters
        })
        .await;
    }

    /// While a guard is held, whoever waits for its gate keeps the claim too: then the volume is nobody else's while the agent is
    /// stopped, which empties systemd's store. Only then: an ordinary boot must depend on no other process.
    pub(super) async fn share_claim(&self) {
        let Some(claim) = self.device.as_ref().and_then(Device::claim_fd) else { return };
        let claim = match claim.try_clone_to_owned() {
            Ok(claim) => claim,
            Err(error) => {
                tracing::warn!(event = "claim.unshared", guard = %self.config.name, %error, "no waiting process keeps the claim");
                return;
            }
        };
        let (run, name) = (self.run.clone(), self.config.name.clone());
        let _kept = blocking(Duration::from_secs(15), move || claims::share(&run, &name, claim.as_fd())).await;
    }

    pub(super) async fn probe(&mut self, full_scan: bool) -> DeviceReading {
        let missing = |detail: String| DeviceReading {
            libblkid: Observed::Unknown(Why::Unreadable { detail: detail.clone() }),
            content: Observed::Unknown(Why::Unreadable { detail }),
            filesystem: None,
        };
        let reader = match self.reader() {
            Ok(reader) => reader,
            Err(detail) => return missing(detail),
        };
        let size = self.guard.device().map_or(0, |facts| facts.size);
        let request = ProbeRequest { full_scan, direct: true };
        let started = Instant::now();
        let (board, template, lives) = (self.board.clone(), self.status(), &self.lives);
        let mut last = Instant::now();
        let reading = worker::probe(reader, &request, Deadline::for_bytes(size), |done, total| {
            lives.works();
            if last.elapsed() >= Duration::from_secs(1) {
                last = Instant::now();
                let progress = reading_progress(done, total, started.elapsed());
                board.report(GuardStatus { progress: Some(progress), ..template.clone() });
            }
        })
        .await;
        self.filesystem = reading.filesystem.clone();
        fault_point("after-probe");
        reading
    }

    pub(super) fn reader(&self) -> Result<OwnedFd, String> {
        match &self.device {
            Some(device) => device.reader().map(OwnedFd::from).map_err(|error| error.to_string()),
            None => Err("the device is not open".to_owned()),
        }
    }

    pub(super) async fn lock_and_reread(&mut self, digest: String, size: u64) -> Event {
        let now = boot_millis().unwrap_or(BootMillis(0));
        let locked = self.with_device(SHORT, |device| device.lock_for_udev().map_err(|error| error.to_string())).await;
        let second = match locked {
            Ok(Ok(lock)) => {
                self.lock = Some(lock);
                fault_point("after-lock");
                match self.reader() {
                    Ok(reader) => worker::second_reading(reader, digest, size, Deadline::quiet(LOOK)).await,
                    Err(detail) => Observed::Unknown(Why::Unreadable { detail }),
                }
            }
            Ok(Err(detail)) => {
                Observed::Unknown(Why::NotRun { detail: format!("the device's lock was not to be had: {detail}") })
            }
            Err(stuck) => Observed::Unknown(stuck.why("locking the device")),
        };
        fault_point("after-second-reading");
        Event::Reread { second, now }
    }

    /// Nobody else shall have the device while it is held.
    pub(super) async fn secure(&mut self) {
        self.drop_mount().await;
        self.lock = None;
        if self.config.mode == Mode::Observe || self.device.is_none() {
            return;
        }
        let claimed = self
            .with_device(SHORT, |device| {
                if device.claimed() { Ok(()) } else { device.reclaim().map_err(|error| error.reason()) }
            })
            .await;
        match claimed {
            Ok(Ok(())) => {
                self.store_claim();
                self.share_claim().await;
            }
            // Held because somebody else has it: no news.
            Ok(Err(_)) if self.guard.reasons().iter().any(|reason| reason.code == ReasonCode::InUse) => {}
            Ok(Err(reason)) => {
                tracing::warn!(event = "claim.refused", guard = %self.config.name, "{}", reason.message);
            }
            Err(stuck) => {
                tracing::warn!(event = "claim.stuck", guard = %self.config.name, "{}", stuck.why("claiming").detail());
            }
        }
    }

    pub(super) async fn let_go(&mut self) {
        self.drop_mount().await;
        self.lock = None;
        self.unstore_claim().await;
        self.device = None;
    }

    /// Runs work on the device on a thread of its own. A device that hangs stays with that thread: it is lost to us until
    /// the kernel answers, and nothing more is done to it.
    pub(super) async fn with_device<T: Send + 'static>(
        &mut self,
        limit: Duration,
        work: impl FnOnce(&mut Device) -> T + Send + 'static,
    ) -> Result<T, Stuck> {
        let Some(mut device) = self.device.take() else { return Err(Stuck::NotOpen) };
        let (device, outcome) = blocking(limit, move || {
            let outcome = work(&mut device);
            (device, outcome)
        })
        .await?;
        self.device = Some(device);
        Ok(outcome)
    }
}

fn reading_progress(done: u64, total: u64, elapsed: Duration) -> Progress {
    let millis = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
    let remaining_s = total
        .saturating_sub(done)
        .checked_mul(millis)
        .and_then(|product| product.checked_div(done))
        .and_then(|millis| millis.checked_div(1000));
    Progress { what: "reading every byte of the device".to_owned(), done, total, remaining_s }
}
