//! What an NVMe controller says of itself, asked on an opened descriptor: neither a stale link nor a name that moved can
//! stand in between. Layout: NVM Express base specification 1.4, figure 247 (Identify Controller).
//!
//! ```text
//!    0  2  PCI vendor
//!    4 20  serial number, ASCII, padded with spaces
//!   24 40  model number, likewise
//! 3072 32  vendor specific; EC2 (amazon-ec2-utils `ebsnvme-id`): the name that the volume was attached as
//! ```

use super::ioctl;
use std::io;
use std::os::fd::AsFd;

/// Bytes of the answer.
pub const LENGTH: usize = 4096;

/// The fields that tell a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controller {
    pub serial: String,
    pub model: String,
    /// `sdf` or `/dev/sdf`; empty where the vendor says nothing.
    pub attached_as: String,
}

/// Asks the controller under an opened device. Fails for what is no NVMe disk, and without CAP_SYS_ADMIN.
pub fn identify(device: impl AsFd) -> io::Result<Controller> {
    let answer = ioctl::nvme_identify(device)?;
    parse(&answer).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the controller's answer is too short"))
}

fn parse(answer: &[u8]) -> Option<Controller> {
    let text = |from: usize, length: usize| {
        let bytes = answer.get(from..from.checked_add(length)?)?;
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        Some(String::from_utf8_lossy(bytes.get(..end)?).trim().to_owned())
    };
    Some(Controller { serial: text(4, 20)?, model: text(24, 40)?, attached_as: text(3072, 32)? })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    #[test]
    fn serial_model_and_name_are_read_without_their_padding() {
        let mut answer = vec![0_u8; LENGTH];
        answer[4..24].copy_from_slice(b"vol0123456789abcdef0");
        answer[24..64].fill(b' ');
        answer[24..50].copy_from_slice(b"Amazon Elastic Block Store");
        answer[3072..3104].fill(b' ');
        answer[3072..3080].copy_from_slice(b"/dev/sdf");
        let controller = parse(&answer).unwrap();
        assert_eq!(controller.serial, "vol0123456789abcdef0");
        assert_eq!(controller.model, "Amazon Elastic Block Store");
        assert_eq!(controller.attached_as, "/dev/sdf");
    }

    #[test]
    fn an_answer_of_any_length_or_content_is_read_or_refused() {
        assert_eq!(parse(&[]), None);
        assert_eq!(parse(&[0xff; 3103]), None);
        assert!(parse(&vec![0xff; LENGTH]).is_some());
        assert_eq!(parse(&vec![0; LENGTH]).unwrap().serial, "");
    }

    #[test]
    fn what_is_no_nvme_disk_refuses_to_be_asked() {
        let file = tempfile::tempfile().unwrap();
        assert!(identify(&file).is_err());
    }
}
