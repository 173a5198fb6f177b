//! `unpin NAME`: what is pinned does not count any more. The next healthy look pins what it finds, as at first use.

use super::{FactToBe, Plan, Step, Subject, plan_and_record};
use crate::cli::exit::Exit;
use crate::cli::output::{Context, Failure};
use crate::model::GuardName;

pub fn run(context: &Context, name: &GuardName, confirm: Option<&str>) -> Result<Exit, Failure> {
    let config = context.config()?;
    let subject = Subject::of(&config, name)?;
    let volume = subject.volume_needed()?;
    let Some(pin) = subject.pin().map_err(|e| super::ledger_failure(&e))? else {
        return Err(Failure::new(Exit::NoMatch, format!("nothing is pinned for {name} on this node"))
            .advise("a pin that only the volume remembers is answered with adopt, where it holds the guard"));
    };
    let steps = vec![
        Step::new(
            "record",
            true,
            format!(
                "record, for {volume}, in this node's ledger, that the pinned identity and progress no longer count"
            ),
        ),
        subject.request_step(),
        Step::new(
            "examine",
            false,
            "the agent examines the volume again and, if nothing else speaks against it, pins what it finds; that there \
             was data is not forgotten: an empty dir stays held",
        ),
    ];
    let ids = vec![volume.to_string(), pin.cluster.to_string()];
    let plan = Plan {
        title: format!("Unpin {name}"),
        facts: vec![("volume", volume.to_string()), ("pinned now", pin.says)],
        steps,
        volume,
        fact: FactToBe::Unpinned,
        sets_ledger_aside: false,
    };
    plan_and_record(context, &subject, plan, confirm, &ids)
}
