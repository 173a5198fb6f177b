//! The watchdog: the agent says that it lives as long as it does, a stalled disk is no death, and a kill for silence closes
//! no gate. The test is the service manager.

use crate::common::{Guard, Loop, Node, Tmp, disk};
use disk::MIB;

/// Microseconds; the agent says something every half of it.
const WATCHDOG_USEC: &str = "200000";
/// Many times that. Whoever cannot speak says nothing in it, however busy the machine is.
const LISTEN: std::time::Duration = std::time::Duration::from_secs(2);

fn watched() -> (Tmp, Loop, Node) {
    let tmp = Tmp::new();
    let device = Loop::new(&disk::sparse(&tmp.join("volume"), 32 * MIB));
    let mut node = Node::new();
    node.configure(&[Guard::enforce("main", device.node(), &node.path("mnt")).data_dir("data")]);
    node.agent_env("WATCHDOG_USEC", Some(WATCHDOG_USEC));
    (tmp, device, node)
}

/// Waits for that many signs of life from now on.
#[track_caller]
fn lives(node: &mut Node, signs: usize) {
    for _ in 0..signs {
        node.await_next_said("WATCHDOG=1");
    }
}

fn signs(node: &Node) -> usize {
    node.manager.said().iter().filter(|text| text.lines().any(|line| line == "WATCHDOG=1")).count()
}

/// What has been said already may still be on its way.
#[track_caller]
fn falls_silent(node: &Node) {
    std::thread::sleep(LISTEN);
    let before = signs(node);
    std::thread::sleep(LISTEN);
    assert_eq!(signs(node), before, "it says that it lives");
}

#[test]
fn an_agent_with_an_open_gate_says_that_it_lives_until_it_cannot() {
    crate::needs_root!();
    let (_tmp, _device, mut node) = watched();
    node.start();
    lives(&mut node, 3);
    node.await_open("main");
    lives(&mut node, 3);
    let pid = nix::unistd::Pid::from_raw(node.agent_pid().cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).expect("SIGSTOP");
    falls_silent(&node);
    node.abort_agent();
    assert!(node.ready_file("main").exists(), "the kill closed the gate");
    assert_eq!(node.volhold(&["wait", "main", "--timeout", "1s"]).code, Some(0));
    assert_eq!(node.gate_check("main").code, Some(0));
    node.start();
    node.await_open("main");
    lives(&mut node, 3);
    // And it says so until its end, also of a reload.
    node.reload();
    lives(&mut node, 3);
    assert_eq!(node.stop_agent(), Some(0));
}

#[test]
fn nobody_is_told_who_did_not_ask() {
    crate::needs_root!();
    let (_tmp, _device, mut node) = watched();
    node.agent_env("WATCHDOG_USEC", None);
    node.start();
    node.await_open("main");
    assert_eq!(signs(&node), 0);
}

#[cfg(feature = "fault-points")]
mod stalls {
    use super::{falls_silent, lives, watched};

    #[test]
    fn a_driver_whose_disk_stalls_is_no_dead_agent() {
        crate::needs_root!();
        let (_tmp, _device, mut node) = watched();
        // On the thread that publishes: a syscall that does not come back.
        node.agent_env("VOLHOLD_STALL_AT", Some("before-seal"));
        node.start();
        node.await_status("main", "publishing", |status| status["state"] == "publishing");
        lives(&mut node, 5);
    }

    #[test]
    fn a_runtime_that_stands_still_is_one_and_its_kill_costs_nothing() {
        crate::needs_root!();
        let (_tmp, _device, mut node) = watched();
        node.agent_env("VOLHOLD_STALL_AT", Some("before-open-gate"));
        node.spawn();
        let mounted = || crate::common::tmp::mounts_below(&node.path("mnt")).len() == 1;
        let ended = crate::common::node::await_change(&node.path("state"), crate::common::node::PATIENCE, mounted);
        assert_eq!(ended, "changed", "{}", node.log());
        falls_silent(&node);
        node.abort_agent();
        node.agent_env("VOLHOLD_STALL_AT", None);
        node.start();
        node.await_open("main");

        // With the gate open it stays so.
        node.kill_agent();
        node.agent_env("VOLHOLD_STALL_AT", Some("after-find"));
        node.spawn();
        falls_silent(&node);
        node.abort_agent();
        assert_eq!(node.volhold(&["wait", "main", "--timeout", "1s"]).code, Some(0), "the kill closed the gate");
        assert_eq!(node.gate_check("main").code, Some(0));
    }

    /// etcd waits for the answer: a ledger that cannot be read in time is a hold, as any that cannot be read.
    #[test]
    fn a_gate_check_whose_ledger_hangs_answers_held() {
        crate::needs_root!();
        let (_tmp, _device, mut node) = watched();
        node.start();
        node.await_open("main");
        let check = node.volhold_with(&["gate", "check", "main"], &[("VOLHOLD_STALL_AT", "before-ledgers-are-read")]);
        assert_eq!(check.code, Some(3), "{check:#?}");
        assert!(check.stderr.contains("timed-out") && check.stderr.contains("ledgers"), "{check:#?}");
        assert_eq!(node.gate_check("main").code, Some(0));
    }

    #[test]
    fn a_guard_that_died_is_no_living_agent() {
        crate::needs_root!();
        let (_tmp, _device, mut node) = watched();
        node.agent_env("VOLHOLD_PANIC_AT", Some("after-claim"));
        node.spawn();
        let dead = || node.log().contains("agent.dying");
        let ended = crate::common::node::await_change(&node.path(""), crate::common::node::PATIENCE, dead);
        assert_eq!(ended, "changed", "{}", node.log());
        falls_silent(&node);
    }
}
