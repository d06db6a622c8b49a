//! Failures of calls.

use crate::script::Undecided;
use redis::RedisError;

/// The reason why the store did not decide.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure {
    /// It was unavailable before the call.
    #[error("the store is unavailable")]
    Unavailable,
    /// No response in time. The store may have charged the request.
    #[error("the store did not respond in time")]
    Timeout,
    /// The call failed.
    #[error("the call to the store failed")]
    Failed,
    /// The store decides nothing until outstanding credits are known.
    #[error("the store is learning which credits are outstanding")]
    Learning,
    /// The value of one of the request's counters is damaged.
    #[error("the store has a damaged counter of the request")]
    Damaged,
    /// The request has a limit with a calendar, and the clocks of the store and of this server are too far apart.
    #[error("the clocks of the store and of this server are more than an hour apart")]
    Clocks,
    /// The request has too many counters for one call.
    #[error("the request has too many counters for the store")]
    TooLarge,
}

impl From<Undecided> for Failure {
    fn from(undecided: Undecided) -> Self {
        match undecided {
            Undecided::Learning => Self::Learning,
            Undecided::Damaged => Self::Damaged,
            Undecided::Clocks => Self::Clocks,
        }
    }
}

/// The part that a failed call puts in doubt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// The connection has ended, or had no response in time.
    Connection,
    /// Only the counters of the call: the script cannot read the value of one. It would fail again.
    Counters,
    /// The node: it refuses all calls of the script, or those that write.
    Node,
}

impl Fault {
    pub(super) fn of(error: &RedisError) -> Self {
        if error.is_io_error() {
            return Self::Connection;
        }
        match error.code() {
            // A key of another type.
            Some("WRONGTYPE") => Self::Counters,
            // Errors of the script begin with its name and line. Those of the store, in its commands, end with them.
            Some("ERR") if error.detail().is_some_and(|text| text.starts_with("user_script:")) => {
                Self::Counters
            }
            _ => Self::Node,
        }
    }
}

/// Whether the error is a response of the store.
pub(super) fn is_response(error: &RedisError) -> bool {
    error.code().is_some()
}

/// The error that the client makes of an error reply.
#[cfg(test)]
pub(super) fn error_of(line: &str) -> RedisError {
    let reply = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).expect("a reply");
    redis::Value::extract_error(reply).expect_err("an error")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The end of a request with a damaged slot used to take the store away from all requests, 64 times in a minute.
    #[test]
    fn an_error_of_a_script_over_a_damaged_counter_puts_only_that_counter_in_doubt() {
        for (fault, line) in [
            (
                Fault::Counters,
                "ERR user_script:2: bad argument #2 to 'unpack' (data string too short) script: fa97, on @user_script:2.",
            ),
            (
                Fault::Counters,
                "WRONGTYPE Operation against a key holding the wrong kind of value script: 705a, on @user_script:2.",
            ),
            (
                Fault::Node,
                "TIDEGATELAYOUT the keys of the store are of another layout or secret: tidegate 3 ff",
            ),
            (
                Fault::Node,
                "OOM command not allowed when used memory > 'maxmemory'. script: a219, on @user_script:1.",
            ),
            (
                Fault::Node,
                "READONLY You can't write against a read only replica. script: a219, on @user_script:1.",
            ),
            (
                Fault::Node,
                "ERR Error running script: killed by user with SCRIPT KILL. script: a219, on @user_script:1.",
            ),
        ] {
            let error = error_of(line);
            assert_eq!((Fault::of(&error), is_response(&error)), (fault, true), "{line}");
        }
        let late = RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut));
        assert_eq!((Fault::of(&late), is_response(&late)), (Fault::Connection, false));
    }
}
