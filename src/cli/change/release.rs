//! `release NAME --for TIME`: lets a person's own tools have the device for a while.

use super::{FactToBe, Plan, Step, Subject, plan_and_record};
use crate::agent::clock::boot_millis;
use crate::cli::exit::Exit;
use crate::cli::output::{Context, Failure};
use crate::cli::text::{moment, span};
use crate::model::{BootMillis, Gate, GuardName, Time};
use std::time::Duration;

/// Longest time to let go for: a release that is forgotten must end by itself.
const LONGEST: Duration = Duration::from_secs(7 * 86_400);

pub fn run(context: &Context, name: &GuardName, time: Duration, confirm: Option<&str>) -> Result<Exit, Failure> {
    if time.is_zero() || time > LONGEST {
        return Err(Failure::new(Exit::Usage, "a release lasts from a second to 7 days"));
    }
    let config = context.config()?;
    let subject = Subject::of(&config, name)?;
    if subject.status.as_ref().is_some_and(|s| s.gate == Gate::Open && !s.would_hold) {
        return Err(Failure::new(
            Exit::Refused,
            format!("{name} is open: its volume is mounted, and volhold holds no claim"),
        )
        .advise("to work on the device, stop etcd and unmount the volume"));
    }
    let plan = plan(&subject, time)?;
    let ids = [plan.volume.to_string()];
    plan_and_record(context, &subject, plan, confirm, &ids)
}

fn plan(subject: &Subject<'_>, time: Duration) -> Result<Plan, Failure> {
    let volume = subject.volume_needed()?;
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    let until = Time::from_unix(Time::now().unix().saturating_add(seconds))
        .ok_or_else(|| Failure::new(Exit::Usage, "that is too long"))?;
    let until_boot = boot_millis().and_then(|now| now.0.checked_add(time.as_secs().checked_mul(1000)?)).map(BootMillis);
    let device = subject.status.as_ref().and_then(|s| s.device.as_ref());
    let node = device.map_or_else(|| "the device".to_owned(), |d| d.node.clone());
    let name = &subject.guard.name;
    let steps = vec![
        Step::new(
            "record",
            true,
            format!("record that {volume} is let go until {}, in this node's ledger", moment(until)),
        ),
        subject.request_step(),
        Step::new(
            "release",
            false,
            format!("the agent gives up its claim on {node} and examines nothing before that time; etcd stays held"),
        ),
    ];
    let facts = vec![
        ("volume", volume.to_string()),
        ("device", node.clone()),
        ("for", format!("{}, until {}", span(seconds), moment(until))),
        (
            "beware",
            format!(
                "without the claim anything on this machine can take {node}: an entry in /etc/fstab, a mount unit, \
                 etcd-manager on kops, another person's mkfs. Stop kubelet and etcd-manager first"
            ),
        ),
        ("to end it", format!("volhold retry {name}")),
    ];
    Ok(Plan {
        title: format!("Release {name}"),
        facts,
        steps,
        volume,
        fact: FactToBe::Released(until, until_boot),
        sets_ledger_aside: false,
    })
}
