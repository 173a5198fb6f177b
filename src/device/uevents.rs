//! Kernel uevents: hints that a block device came, changed or went. Never facts: whoever hears one looks at sysfs.

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use tokio::sync::mpsc;

/// The kernel's own multicast group (`lib/kobject_uevent.c`: netlink_broadcast to group 1). Group 2 is udev's.
const KERNEL_GROUP: u32 = 1;

/// Longest uevent: `UEVENT_BUFFER_SIZE` (2048) and the header line, `include/linux/kobject.h`.
const LONGEST: usize = 8192;

/// Hears the kernel's uevents of the block subsystem, on a thread of its own that sleeps in the kernel.
pub struct Uevents {
    heard: mpsc::Receiver<Option<Uevent>>,
}

/// One block uevent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uevent {
    /// `add`, `change`, `remove`, …
    pub action: String,
    /// Kernel name, `nvme1n1`.
    pub name: String,
}

impl Uevents {
    /// Fails where netlink is not to be had; then only timers look again.
    pub fn open() -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let fd = socket(AddressFamily::Netlink, SockType::Datagram, flags, SockProtocol::NetlinkKObjectUEvent)?;
        bind(fd.as_raw_fd(), &NetlinkAddr::new(0, KERNEL_GROUP))?;
        let (tell, heard) = mpsc::channel(64);
        std::thread::Builder::new().name("uevents".to_owned()).spawn(move || listen(&fd, &tell))?;
        Ok(Uevents { heard })
    }

    /// The next uevent of a block device. `Some(None)`: messages were lost, or one could not be read: look at everything.
    /// `None`: the socket is gone.
    pub async fn next(&mut self) -> Option<Option<Uevent>> {
        self.heard.recv().await
    }
}

/// Ends when nobody listens any more or the socket fails.
fn listen(fd: &OwnedFd, tell: &mpsc::Sender<Option<Uevent>>) {
    let mut buffer = [0_u8; LONGEST];
    loop {
        let said = match recv(fd.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
            Ok(length) => match parse(buffer.get(..length).unwrap_or(&[])) {
                Parsed::Block(uevent) => Some(uevent),
                Parsed::Other => continue,
                Parsed::Unclear => None,
            },
            Err(Errno::EINTR) => continue,
            // The queue overflowed and messages are gone.
            Err(Errno::ENOBUFS) => None,
            Err(error) => {
                tracing::warn!(event = "watch.failed", error = %error, "uevents are not heard any more");
                return;
            }
        };
        if tell.blocking_send(said).is_err() {
            return;
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Parsed {
    Block(Uevent),
    Other,
    Unclear,
}

/// `ACTION@DEVPATH\0KEY=VALUE\0…`, `lib/kobject_uevent.c`.
fn parse(message: &[u8]) -> Parsed {
    let (mut action, mut name, mut subsystem) = (None, None, None);
    for field in message.split(|byte| *byte == 0).skip(1) {
        let Ok(text) = std::str::from_utf8(field) else { return Parsed::Unclear };
        match text.split_once('=') {
            Some(("ACTION", value)) => action = Some(value.to_owned()),
            Some(("DEVNAME", value)) => name = Some(value.trim_start_matches("/dev/").to_owned()),
            Some(("SUBSYSTEM", value)) => subsystem = Some(value.to_owned()),
            Some(_) | None => {}
        }
    }
    match (subsystem.as_deref(), action, name) {
        (Some("block"), Some(action), Some(name)) => Parsed::Block(Uevent { action, name }),
        (Some("block"), _, _) => Parsed::Unclear,
        (Some(_), _, _) => Parsed::Other,
        (None, _, _) => Parsed::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_uevent_names_its_device() {
        let message = b"change@/devices/virtual/block/loop0\0ACTION=change\0SUBSYSTEM=block\0DEVNAME=loop0\0SEQNUM=9\0";
        let expected = Uevent { action: "change".into(), name: "loop0".into() };
        assert_eq!(parse(message), Parsed::Block(expected));
    }

    #[test]
    fn uevents_of_other_subsystems_are_passed_over() {
        assert_eq!(parse(b"add@/x\0ACTION=add\0SUBSYSTEM=net\0"), Parsed::Other);
    }

    #[test]
    fn a_block_uevent_without_a_name_means_look_at_everything() {
        assert_eq!(parse(b"add@/x\0ACTION=add\0SUBSYSTEM=block\0"), Parsed::Unclear);
    }
}
