#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::wildcard_enum_match_arm,
    reason = "a test that panics is a test that fails"
)]

use super::*;
use std::io::{Read, Write};
use std::os::unix::net::UnixDatagram;

/// A service manager's end of the socket.
struct Manager {
    socket: UnixDatagram,
    dir: tempfile::TempDir,
}

impl Manager {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(dir.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Manager { socket, dir }
    }

    fn notifier(&self) -> Notifier {
        Notifier::at(self.dir.path().join("notify").as_os_str().as_bytes()).unwrap()
    }

    fn hear(&self) -> String {
        let mut buffer = [0; 4096];
        let n = self.socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..n].to_vec()).unwrap()
    }

    /// A message with the numbers of the descriptors that came with it.
    fn hear_with_descriptors(&self) -> (String, Vec<i32>) {
        use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
        let mut buffer = [0; 4096];
        let mut iov = [std::io::IoSliceMut::new(&mut buffer)];
        let mut space = nix::cmsg_space!([i32; 4]);
        let message =
            recvmsg::<()>(self.socket.as_raw_fd(), &mut iov, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC).unwrap();
        let mut numbers = Vec::new();
        for control in message.cmsgs().unwrap() {
            if let ControlMessageOwned::ScmRights(fds) = control {
                numbers.extend(fds);
            }
        }
        let n = message.bytes;
        (String::from_utf8(buffer[..n].to_vec()).unwrap(), numbers)
    }
}

#[test]
fn a_message_is_its_lines() {
    let manager = Manager::new();
    manager.notifier().send(&["READY=1"], &[]).unwrap();
    manager.notifier().send(&[&status_line("held: data-vanished")], &[]).unwrap();
    assert_eq!(manager.hear(), "READY=1");
    assert_eq!(manager.hear(), "STATUS=held: data-vanished");
}

#[test]
fn a_status_is_one_line_of_bounded_length() {
    assert_eq!(status_line("a\nFDSTOREREMOVE=1\tb"), "STATUS=a FDSTOREREMOVE=1 b");
    assert_eq!(status_line(&"ä".repeat(9999)).chars().count(), "STATUS=".len() + MAX_STATUS);
}

#[test]
fn a_claim_is_stored_as_the_same_open_file_under_the_guards_name() {
    let manager = Manager::new();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"claimed").unwrap();
    let lines = ["FDSTORE=1", &format!("FDNAME={}", store_name(&"main".parse().unwrap()))];
    manager.notifier().send(&lines, &[file.as_fd()]).unwrap();
    let (message, numbers) = manager.hear_with_descriptors();
    assert_eq!(message, "FDSTORE=1\nFDNAME=claim-main");
    assert_eq!(numbers.len(), 1);
    let kept = take_descriptor(numbers[0]).unwrap();
    // The offset is shared only when it is the same open file.
    use std::io::{Seek, SeekFrom};
    file.seek(SeekFrom::Start(3)).unwrap();
    let mut text = String::new();
    std::fs::File::from(kept).read_to_string(&mut text).unwrap();
    assert_eq!(text, "imed");
}

#[test]
fn a_descriptor_that_is_taken_over_is_closed_on_exec_and_a_wrong_number_is_an_error() {
    let file = tempfile::tempfile().unwrap();
    let number = std::os::fd::IntoRawFd::into_raw_fd(file);
    let taken = take_descriptor(number).unwrap();
    let flags = nix::fcntl::fcntl(&taken, nix::fcntl::FcntlArg::F_GETFD).unwrap();
    assert_eq!(flags, nix::libc::FD_CLOEXEC);
    assert!(take_descriptor(9999).is_err());
}

#[test]
fn a_barrier_waits_for_the_manager_and_not_longer_than_it_may() {
    let manager = Manager::new();
    let notifier = manager.notifier();
    assert!(!notifier.barrier(Duration::from_millis(20)).unwrap(), "nobody has read it");
    let (first, numbers) = manager.hear_with_descriptors();
    assert_eq!((first.as_str(), numbers.len()), ("BARRIER=1", 1));
    let answered = std::thread::scope(|scope| {
        scope.spawn(|| {
            let (_, numbers) = manager.hear_with_descriptors();
            drop(take_descriptor(numbers[0]).unwrap());
        });
        notifier.barrier(Duration::from_secs(10)).unwrap()
    });
    assert!(answered);
}

#[test]
fn an_abstract_socket_is_a_socket_and_other_words_are_none() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::SocketAddr;
    let name = format!("volhold-test-{}", std::process::id());
    let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    Notifier::at(format!("@{name}").as_bytes()).unwrap().send(&["STOPPING=1"], &[]).unwrap();
    let mut buffer = [0; 64];
    let n = socket.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..n], b"STOPPING=1");
    assert!(Notifier::at(b"").is_err());
    assert!(Notifier::at(b"vsock:2:1234").is_err());
}

#[test]
fn a_manager_that_is_gone_is_an_error_and_no_panic() {
    let manager = Manager::new();
    let notifier = manager.notifier();
    drop(manager);
    assert!(notifier.send(&["READY=1"], &[]).is_err());
}

#[test]
fn the_watchdog_is_fed_twice_as_often_as_it_asks() {
    let own = std::process::id().to_string();
    assert_eq!(interval_of("10000000", Some(&own)), Some(Duration::from_secs(5)));
    assert_eq!(interval_of("10000000", None), Some(Duration::from_secs(5)));
    assert_eq!(interval_of("10000000", Some("1")), None);
    assert_eq!(interval_of("0", None), None);
    assert_eq!(interval_of("soon", None), None);
}

#[test]
fn descriptors_for_another_process_are_not_taken() {
    let taken = |pid: &str, count: &str| take_inherited(Some(pid.into()), Some(count.into()), Some("claim-a".into()));
    assert_eq!(taken("1", "1").len(), 0);
    assert_eq!(take_inherited(None, Some("1".into()), None).len(), 0);
    assert_eq!(taken(&std::process::id().to_string(), "many").len(), 0);
}

#[test]
fn of_several_claims_under_one_name_only_the_newest_lives_on() {
    let claims: Vec<std::rc::Rc<()>> = (0..3).map(|_| std::rc::Rc::new(())).collect();
    let names = ["claim-main", "claim-events", "claim-main"];
    let mut kept: Vec<_> = names.iter().zip(&claims).map(|(name, claim)| ((*name).to_owned(), claim.clone())).collect();
    let newest = newest(&mut kept, "claim-main").unwrap();
    assert!(std::rc::Rc::ptr_eq(&newest, &claims[2]));
    let alive: Vec<usize> = claims.iter().map(std::rc::Rc::strong_count).collect();
    assert_eq!(alive, [1, 2, 2], "the older one keeps the device");
}
