//! The exit codes, in one place: scripts and unit files rely on them, and the README's table is compared with this.

/// How every verb ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Ok,
    Error,
    Usage,
    Held,
    Refused,
    NoMatch,
    TryLater,
    NoPermission,
    BadConfig,
}

impl Exit {
    /// Every code, in the order of the README's table.
    pub const ALL: &'static [Exit] = &[
        Exit::Ok,
        Exit::Error,
        Exit::Usage,
        Exit::Held,
        Exit::Refused,
        Exit::NoMatch,
        Exit::TryLater,
        Exit::NoPermission,
        Exit::BadConfig,
    ];

    /// The number that the shell sees. 69 and above follow sysexits.h, 3 follows `systemctl is-active`.
    pub fn code(self) -> u8 {
        match self {
            Exit::Ok => 0,
            Exit::Error => 1,
            Exit::Usage => 2,
            Exit::Held => 3,
            Exit::Refused => 4,
            Exit::NoMatch => 5,
            Exit::TryLater => 75,
            Exit::NoPermission => 77,
            Exit::BadConfig => 78,
        }
    }

    /// What it means, as the README says it.
    pub fn meaning(self) -> &'static str {
        match self {
            Exit::Ok => "done, open, or healthy",
            Exit::Error => "something failed; standard error says what",
            Exit::Usage => "wrong usage, or the consent that the verb asks for is missing",
            Exit::Held => "a gate is held",
            Exit::Refused => "refused for safety, or what was found is neither blank nor healthy",
            Exit::NoMatch => "the device, directory or record asked for is not there",
            Exit::TryLater => "not decided yet, or the time given is over",
            Exit::NoPermission => "not permitted; most verbs need root",
            Exit::BadConfig => "the configuration is wrong or does not know this guard, or the kernel is too old",
        }
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        std::process::ExitCode::from(exit.code())
    }
}
