//! What EC2 says when it refuses: its code strings as a closed enum, in this one place, each in plain words and with what to
//! do about it. Codes are those of the EC2 API reference, "Error codes for the Amazon EC2 API".

use crate::model::{Reason, ReasonCode};
use serde_json::json;

/// One kind of refusal, or why there was no answer at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    VolumeNotFound,
    ZoneMismatch,
    VolumeInUse,
    IncorrectState,
    /// Nearly always the device name: in use, or not one that EC2 takes.
    InvalidParameter,
    AttachmentLimit,
    /// 50 tags are on it already.
    TagLimit,
    /// The key of an encrypted volume cannot be used, or the instance type cannot encrypt.
    Encryption,
    InstanceNotFound,
    /// Multi-attach without an instance or volume type for it, and the like.
    Unsupported,
    Unauthorized,
    /// Credentials that are wrong or out of date, or a clock that is.
    Credentials,
    Throttled,
    Unavailable,
    /// The account may not use EC2 (yet, or any more).
    Account,
    /// A code that is not known here.
    Unknown,
    /// No answer: no network, no name, no connection, or not in time. What was asked for may have been done.
    NoAnswer,
    /// No credentials are to be had.
    NoCredentials,
    /// The instance metadata service does not answer, or not with version 2.
    NoMetadata,
    /// This binary was built without EC2.
    NotBuilt,
}

impl Code {
    pub const ALL: [Code; 20] = [
        Code::VolumeNotFound,
        Code::ZoneMismatch,
        Code::VolumeInUse,
        Code::IncorrectState,
        Code::InvalidParameter,
        Code::AttachmentLimit,
        Code::TagLimit,
        Code::Encryption,
        Code::InstanceNotFound,
        Code::Unsupported,
        Code::Unauthorized,
        Code::Credentials,
        Code::Throttled,
        Code::Unavailable,
        Code::Account,
        Code::Unknown,
        Code::NoAnswer,
        Code::NoCredentials,
        Code::NoMetadata,
        Code::NotBuilt,
    ];

    /// From EC2's own string.
    pub fn of(said: &str) -> Self {
        match said {
            "InvalidVolume.NotFound" | "InvalidVolumeID.NotFound" | "InvalidVolumeID.Malformed" => Code::VolumeNotFound,
            "InvalidVolume.ZoneMismatch" | "InvalidVolumeID.ZoneMismatch" => Code::ZoneMismatch,
            "VolumeInUse" | "InvalidVolumeID.Duplicate" => Code::VolumeInUse,
            "IncorrectState" | "IncorrectInstanceState" => Code::IncorrectState,
            "InvalidParameterValue" | "InvalidParameter" | "InvalidDevice.InUse" => Code::InvalidParameter,
            "AttachmentLimitExceeded" => Code::AttachmentLimit,
            "TagLimitExceeded" => Code::TagLimit,
            "EncryptedVolumesNotSupported"
            | "InvalidKmsKey.InvalidState"
            | "InvalidKMSKey.InvalidState"
            | "KMSKeyNotAccessible" => Code::Encryption,
            "InvalidInstanceID.NotFound" | "InvalidInstanceID.Malformed" | "InvalidInstanceID" => {
                Code::InstanceNotFound
            }
            "UnsupportedOperation" | "UnsupportedOperationException" | "InvalidParameterCombination" => {
                Code::Unsupported
            }
            "UnauthorizedOperation" | "AccessDenied" | "AccessDeniedException" => Code::Unauthorized,
            "AuthFailure"
            | "ExpiredToken"
            | "ExpiredTokenException"
            | "InvalidClientTokenId"
            | "MissingAuthenticationToken"
            | "RequestExpired"
            | "SignatureDoesNotMatch"
            | "UnrecognizedClientException" => Code::Credentials,
            "RequestLimitExceeded"
            | "Throttling"
            | "ThrottlingException"
            | "ThrottledException"
            | "RequestThrottled"
            | "RequestThrottledException"
            | "TooManyRequestsException"
            | "SlowDown"
            | "EC2ThrottledException" => Code::Throttled,
            "InternalError" | "InternalFailure" | "InternalServerError" | "ServiceUnavailable" | "Unavailable" => {
                Code::Unavailable
            }
            "Blocked" | "OptInRequired" | "PendingVerification" | "AccountDisabled" => Code::Account,
            _other => Code::Unknown,
        }
    }

    /// What it means, in one sentence that follows a colon.
    pub fn words(self) -> &'static str {
        match self {
            Code::VolumeNotFound => "there is no such volume in this account and region",
            Code::ZoneMismatch => "the volume lies in another zone than this instance",
            Code::VolumeInUse => "another instance has the volume, or was faster",
            Code::IncorrectState => "volume or instance is not in a state in which a volume can be attached",
            Code::InvalidParameter => "the device name is in use on this instance, or EC2 does not take it",
            Code::AttachmentLimit => "this instance has as many attachments as its type allows",
            Code::TagLimit => "it has as many tags as it can have",
            Code::Encryption => {
                "the volume is encrypted, and its key cannot be used or this instance type cannot decrypt it"
            }
            Code::InstanceNotFound => "EC2 does not know this instance",
            Code::Unsupported => "EC2 does not do this for this kind of volume or instance",
            Code::Unauthorized => "the role of this instance does not permit it",
            Code::Credentials => "EC2 does not accept the credentials, or this machine's clock is wrong",
            Code::Throttled => "the account has made too many requests",
            Code::Unavailable => "EC2 is out of order for the moment",
            Code::Account => "the account is not allowed to use EC2 here",
            Code::Unknown => "EC2 refuses for a reason that volhold does not know",
            Code::NoAnswer => "EC2 does not answer",
            Code::NoCredentials => "there are no credentials: no instance profile, or no answer about it",
            Code::NoMetadata => "the instance metadata service does not answer (version 2, with a token)",
            Code::NotBuilt => "this volhold was built without EC2",
        }
    }

    /// What a person, or volhold, does about it.
    pub fn remedy(self) -> &'static str {
        match self {
            Code::VolumeNotFound => "compare `volume_id` with the EC2 console",
            Code::ZoneMismatch => {
                "a volume cannot be moved: start the instance in its zone, or make a volume from a snapshot in this one"
            }
            Code::VolumeInUse => "volhold looks who has it",
            Code::IncorrectState => "volhold looks which state it is in",
            Code::InvalidParameter => "volhold tries another name",
            Code::AttachmentLimit => "detach what is not needed, or take a larger instance type",
            Code::TagLimit => "take tags away that nobody needs",
            Code::Encryption => "enable the KMS key, or permit the role of this instance to use it",
            Code::InstanceNotFound => "compare the region, and what the instance metadata says, with the EC2 console",
            Code::Unsupported => "compare the kinds of volume and instance with what EC2 offers",
            Code::Unauthorized => "permit the action to the instance's role",
            Code::Credentials => "compare the clock, and the instance profile",
            Code::Throttled | Code::Unavailable | Code::NoAnswer => "volhold asks again, ever more rarely",
            Code::Account => "ask who owns the account",
            Code::Unknown => "look the code up in the EC2 API reference",
            Code::NoCredentials => "give the instance a profile with the role that the manual names",
            Code::NoMetadata => "enable the metadata service for this instance; a hop limit of 1 is enough",
            Code::NotBuilt => "install a package of volhold, which has it",
        }
    }

    /// Does nobody have to do anything but wait?
    pub fn passes_by_itself(self) -> bool {
        match self {
            Code::VolumeInUse
            | Code::IncorrectState
            | Code::InvalidParameter
            | Code::Throttled
            | Code::Unavailable
            | Code::NoAnswer
            | Code::NoCredentials
            | Code::NoMetadata => true,
            Code::VolumeNotFound
            | Code::ZoneMismatch
            | Code::AttachmentLimit
            | Code::TagLimit
            | Code::Encryption
            | Code::InstanceNotFound
            | Code::Unsupported
            | Code::Unauthorized
            | Code::Credentials
            | Code::Account
            | Code::Unknown
            | Code::NotBuilt => false,
        }
    }

    /// The stable code that a guard is held for, or waits for.
    pub fn reason_code(self) -> ReasonCode {
        match self {
            Code::VolumeNotFound => ReasonCode::VolumeNotFound,
            Code::VolumeInUse => ReasonCode::VolumeElsewhere,
            Code::Unauthorized | Code::Credentials | Code::Account => ReasonCode::NoPermission,
            Code::Throttled => ReasonCode::Throttled,
            Code::ZoneMismatch
            | Code::IncorrectState
            | Code::InvalidParameter
            | Code::AttachmentLimit
            | Code::TagLimit
            | Code::Encryption
            | Code::InstanceNotFound
            | Code::Unsupported
            | Code::Unknown => ReasonCode::AttachRefused,
            Code::Unavailable | Code::NoAnswer | Code::NoCredentials | Code::NoMetadata | Code::NotBuilt => {
                ReasonCode::ProviderUnreachable
            }
        }
    }
}

/// A call that came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{action}: {}{}", code.words(), said_in_brackets(said))]
pub struct ApiError {
    pub code: Code,
    /// The action as IAM names it without its prefix (`AttachVolume`), or `metadata`.
    pub action: &'static str,
    /// EC2's own code and message, or what went wrong on the way. No header and no body ever gets in here.
    pub said: String,
}

fn said_in_brackets(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!(" ({said})") }
}

impl ApiError {
    /// What went wrong, for a sentence of somebody who can or cannot do without it.
    pub fn what(&self) -> String {
        match self.code {
            Code::Unauthorized => format!("ec2:{} is not permitted", self.action),
            Code::NoCredentials | Code::NoMetadata | Code::NotBuilt => self.code.words().to_owned(),
            _other => format!("{}: {}", self.action, self.code.words()),
        }
    }

    /// For a guard that waits or is held for it. `about`: the volume, in words.
    pub fn reason(&self, about: &str) -> Reason {
        let what = self.what();
        Reason::new(
            self.code.reason_code(),
            format!("{about} is not attached to this machine, and {what}; {}", self.code.remedy()),
        )
        .with_detail(json!({ "action": self.action, "said": self.said }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_code_has_words_of_its_own_and_says_what_to_do() {
        let words: BTreeSet<&str> = Code::ALL.iter().map(|code| code.words()).collect();
        assert_eq!(words.len(), Code::ALL.len());
        assert!(Code::ALL.iter().all(|code| !code.remedy().is_empty()));
    }

    #[test]
    fn strings_of_ec2_are_told_apart() {
        for (said, code) in [
            ("VolumeInUse", Code::VolumeInUse),
            ("IncorrectState", Code::IncorrectState),
            ("InvalidVolume.ZoneMismatch", Code::ZoneMismatch),
            ("AttachmentLimitExceeded", Code::AttachmentLimit),
            ("InvalidParameterValue", Code::InvalidParameter),
            ("InvalidVolume.NotFound", Code::VolumeNotFound),
            ("UnauthorizedOperation", Code::Unauthorized),
            ("RequestLimitExceeded", Code::Throttled),
            ("InternalError", Code::Unavailable),
            ("AuthFailure", Code::Credentials),
            ("SomethingNew", Code::Unknown),
            ("", Code::Unknown),
        ] {
            assert_eq!(Code::of(said), code, "{said}");
        }
    }

    #[test]
    fn a_missing_permission_is_named_by_its_action() {
        let error =
            ApiError { code: Code::Unauthorized, action: "AttachVolume", said: "UnauthorizedOperation".to_owned() };
        let reason = error.reason("vol-1a2b3c4d");
        assert_eq!(reason.code, ReasonCode::NoPermission);
        assert!(reason.message.contains("ec2:AttachVolume is not permitted"), "{}", reason.message);
    }
}
