//! The claim that systemd keeps over a restart, as a new process receives it.

use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use volhold::gate::notify;
use volhold::model::GuardName;

const CHILD: &str = "VOLHOLD_TEST_INHERITS";

fn guard(name: &str) -> GuardName {
    name.parse().expect("a name")
}

/// The child of the test below: what a restarted agent does.
#[test]
#[ignore = "is run by a_kept_claim_is_handed_to_the_next_process_once"]
fn takes_what_it_inherited() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    assert_eq!(notify::inherit(), ["claim-events", "claim-main", "claim-main"]);
    assert!(notify::take_stored(&guard("other")).is_none());
    let kept = notify::take_stored(&guard("main")).expect("the claim");
    assert!(kept.as_raw_fd() != 5, "it is not left behind under the inherited number");
    assert!(!std::path::Path::new("/proc/self/fd/5").exists());
    assert!(notify::take_stored(&guard("main")).is_none(), "it is handed out once");
    let mut text = String::new();
    std::fs::File::from(kept).read_to_string(&mut text).expect("the same open file");
    println!("read <{text}>");
}

#[test]
fn a_kept_claim_is_handed_to_the_next_process_once() {
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(b"claimed").expect("its content");
    // The child sees the rest of the content only if it has this very open file, and not the file opened anew.
    file.seek(SeekFrom::Start(3)).expect("a place");
    let this = std::env::current_exe().expect("this program");
    let output = Command::new("sh")
        .args(["-c", "exec 5<&0 4</dev/null 3</dev/null 0</dev/null; LISTEN_PID=$$ exec \"$0\" \"$@\""])
        .arg(this)
        .args(["gate::takes_what_it_inherited", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .env("LISTEN_FDS", "3")
        .env("LISTEN_FDNAMES", "claim-events:claim-main:claim-main")
        .stdin(Stdio::from(file))
        .output()
        .expect("a child");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("read <imed>"), "{said}");
}
