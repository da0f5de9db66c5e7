//! What a classifier takes: memory, and the time that it took to make.

use std::time::Duration;

/// What a classifier takes. Sizes are 0 and times zero for what the engine has not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Rules in the set.
    pub rules: usize,
    /// Those that can win, as far as the planner knows.
    pub live_rules: usize,
    /// Bytes of machine code with its padding, without the pool.
    pub code_bytes: usize,
    /// Bytes of the pool behind the code: small tables and constants.
    pub pool_bytes: usize,
    /// Bytes of the tables, those in the pool included.
    pub table_bytes: usize,
    /// Bytes of the large tables for which the operating system took the advice to use huge pages; whether it does is up to it.
    pub huge_page_bytes: usize,
    /// Bytes of stack that a call of the generated code takes.
    pub stack_bytes: usize,
    /// Machine instructions in the code, all entries together.
    pub instructions: usize,
    /// Time that planning took.
    pub plan_time: Duration,
    /// Time that code generation took.
    pub compile_time: Duration,
    /// Time that the audit took.
    pub audit_time: Duration,
    /// Time that it took to place and seal the code and its tables.
    pub publish_time: Duration,
}
