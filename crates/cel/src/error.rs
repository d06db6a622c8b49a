//! Bounds of expressions, and the errors of expressions that exceed them or have no value.

/// Bytes of an expression.
pub const LENGTH_MAX: usize = 8 * 1024;

/// Depth of an expression's tree. Chains of `&&` and of `||` count as one level.
pub const DEPTH_MAX: u32 = 64;

/// Depth of loops (`exists`, `all`, …) in loops.
pub const LOOPS_MAX: usize = 3;

/// Steps of one evaluation.
pub const COST_MAX: u32 = 100_000;

/// The reason why a text is not an expression.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct ParseError {
    /// Place in the text, in bytes.
    pub offset: usize,
    /// The reason, and the remedy.
    pub message: String,
}

/// Reason why an expression has no value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EvaluationError {
    /// A map has no such key.
    #[error("the map has no such key")]
    NoSuchKey,
    /// A list has no such item.
    #[error("the list has no such item")]
    NoSuchItem,
    /// An operator or a function is not for values of this type.
    #[error("the operation is not for values of this type")]
    Type,
    /// A number is too large, or is divided by zero.
    #[error("the number has no value")]
    Number,
    /// A text is not a value of the type that it is converted to.
    #[error("the text cannot be converted")]
    Conversion,
    /// Evaluation would take too many steps.
    #[error("evaluation takes more than {COST_MAX} steps")]
    Cost,
}
