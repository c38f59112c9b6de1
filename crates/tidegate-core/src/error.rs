//! Why a limit could not be built.

use alloc::string::String;
use core::time::Duration;

use crate::spec::AlgorithmName;

/// Parameters that no limit can have. Each names the parameter and says what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// A parameter that the algorithm does not know.
    #[error("`{field}` has no meaning for `{algorithm}`")]
    NotWith {
        /// The parameter.
        field: &'static str,
        /// The algorithm it was given to.
        algorithm: AlgorithmName,
    },
    /// Two parameters that exclude each other.
    #[error("`{field}` and `{other}` exclude each other")]
    Exclude {
        /// One.
        field: &'static str,
        /// The other.
        other: &'static str,
    },
    /// A parameter that has to be given.
    #[error("`{algorithm}` needs `{field}`")]
    Missing {
        /// The parameter.
        field: &'static str,
        /// The algorithm that needs it.
        algorithm: AlgorithmName,
    },
    /// Zero where something has to be.
    #[error("`{field}` is 0; it has to be at least {least}")]
    Zero {
        /// The parameter.
        field: &'static str,
        /// The least value.
        least: &'static str,
    },
    /// Less than there has to be.
    #[error("`{field}` is {given}; it has to be at least {least}")]
    TooSmall {
        /// The parameter.
        field: &'static str,
        /// Its value.
        given: u64,
        /// The least value.
        least: u64,
    },
    /// More units at first sight than the bucket holds.
    #[error("`initial` is {initial}, but the bucket holds only {size}")]
    InitialAboveSize {
        /// Units at first sight.
        initial: u64,
        /// What the bucket holds.
        size: u64,
    },
    /// A duration beyond what nanoseconds in 64 bits can tell.
    #[error("`{field}` is {given:?}, longer than 584 years")]
    TooLong {
        /// The parameter.
        field: &'static str,
        /// Its value.
        given: Duration,
    },
    /// A number beyond what the algorithm can keep.
    #[error("`{field}` is {given}; `{algorithm}` holds at most {most}")]
    TooLarge {
        /// The parameter.
        field: &'static str,
        /// Its value.
        given: u64,
        /// The most.
        most: u64,
        /// The algorithm.
        algorithm: AlgorithmName,
    },
    /// A soft allowance that passes the end of numbers.
    #[error(
        "`soft.over` is {over_bp} hundredths of a percent: added to {limit} that is above 2^64"
    )]
    SoftTooLarge {
        /// The limit.
        limit: u64,
        /// The allowance in hundredths of a percent.
        over_bp: u32,
    },
    /// Numbers that together go beyond exact arithmetic.
    #[error("{units} units per {period:?} with these sizes cannot be computed exactly in 128 bits")]
    TooFine {
        /// The rate's units.
        units: u64,
        /// The rate's period.
        period: Duration,
    },
    /// Text that is not a limit.
    #[error("`{text}` is not a limit: {reason}")]
    Text {
        /// What was read.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
}
