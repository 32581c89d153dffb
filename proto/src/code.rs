//! The status codes of gRPC.

/// A gRPC status code: the number in `grpc-status`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Code {
    /// Not an error.
    Ok = 0,
    /// Cancelled, usually by the caller.
    Cancelled = 1,
    /// Anything without a specific code.
    Unknown = 2,
    /// The request is wrong in every state of the server.
    InvalidArgument = 3,
    /// The caller's deadline passed.
    DeadlineExceeded = 4,
    /// What was asked for does not exist.
    NotFound = 5,
    /// What was to be created exists.
    AlreadyExists = 6,
    /// This caller may not do this.
    PermissionDenied = 7,
    /// A limit is reached.
    ResourceExhausted = 8,
    /// The server is not in the state that this needs.
    FailedPrecondition = 9,
    /// A conflict with another request.
    Aborted = 10,
    /// A value or a message beyond its bounds.
    OutOfRange = 11,
    /// The server does not know this method.
    Unimplemented = 12,
    /// A defect.
    Internal = 13,
    /// Not possible now; trying again later may help.
    Unavailable = 14,
    /// Data is lost.
    DataLoss = 15,
    /// The caller is not known.
    Unauthenticated = 16,
}

impl Code {
    const ALL: [Self; 17] = [
        Self::Ok,
        Self::Cancelled,
        Self::Unknown,
        Self::InvalidArgument,
        Self::DeadlineExceeded,
        Self::NotFound,
        Self::AlreadyExists,
        Self::PermissionDenied,
        Self::ResourceExhausted,
        Self::FailedPrecondition,
        Self::Aborted,
        Self::OutOfRange,
        Self::Unimplemented,
        Self::Internal,
        Self::Unavailable,
        Self::DataLoss,
        Self::Unauthenticated,
    ];

    /// The code of the value of a `grpc-status` header; what is not one of them is [`Code::Unknown`], as gRPC has it.
    pub fn from_header(value: &[u8]) -> Self {
        let number = str::from_utf8(value).ok().and_then(|text| text.parse::<usize>().ok());
        number.and_then(|number| Self::ALL.get(number)).copied().unwrap_or(Self::Unknown)
    }
}

/// tonic's code as one of ours. Functions and not `From`, so that the API of [`Code`], which clients re-export, has no type
/// of tonic.
#[cfg(feature = "tonic")]
#[doc(hidden)]
pub fn from_tonic(code: tonic::Code) -> Code {
    let number = usize::try_from(i32::from(code)).ok();
    number.and_then(|number| Code::ALL.get(number)).copied().unwrap_or(Code::Unknown)
}

/// A code as tonic's.
#[cfg(feature = "tonic")]
#[doc(hidden)]
pub fn to_tonic(code: Code) -> tonic::Code {
    tonic::Code::from_i32(code as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_its_number_and_anything_else_is_unknown() {
        for (index, code) in Code::ALL.into_iter().enumerate() {
            assert_eq!(code as usize, index);
            assert_eq!(Code::from_header(index.to_string().as_bytes()), code);
        }
        for other in [&b"17"[..], b"", b"-1", b"UNAVAILABLE", b"\xff"] {
            assert_eq!(Code::from_header(other), Code::Unknown, "{other:?}");
        }
    }

    #[cfg(feature = "tonic")]
    #[test]
    fn tonic_has_the_same_codes() {
        for code in Code::ALL {
            assert_eq!(from_tonic(to_tonic(code)), code);
            assert_eq!(format!("{code:?}"), format!("{:?}", to_tonic(code)));
        }
    }
}
