//! `enable`, `disable` and `doctor`: files below a scratch root, and machines with a real systemd.

/// Files only, as for an image.
mod image;
/// Machines with a real systemd.
mod machine;
/// What waits, and for what.
mod waits;
