//! The text form of a program: what listings, failing tests and filetests show, and what [`parse`] reads back.
//!
//! Printing and then parsing is the identity for every [`Program`](crate::Program), verified or not. Line breaks and
//! indentation mean nothing; a comment runs from `;` to the end of the line. Numbers are decimal or `0x` hexadecimal, names
//! are quoted as in Rust.
//!
//! ```text
//! layout len=8 {
//!   ipv4_addr "saddr" at 0 big
//!   inet_service "dport" at 4 big
//! }
//! verdicts 100
//!
//! table0 "buckets" row_bytes=16 {
//!   "saddr" u32 x 4 at 0 max=0xffffffff        ; four numbers of 32 bits from byte 0 of the row
//!   data                                       ; the rows' bytes, one row a line
//!     0a000001 0a000002 0a000003 0a000004
//! }
//!
//! block0:                                      ; a block names its parameters: block1(v7: scalar, v8: lanes.8)
//!   v0 = load_key.be32 0
//!   v1 = const 0x0
//!   v2 = row table0[v1]
//!   v3 = load_lanes.4 v2.0[0]                  ; v2.0 is column 0 of the row v2
//!   v4 = splat.4 v0
//!   v5 = eq_lanes v4, v3
//!   v6 = lane_bits v5
//!   v7 = first_bit v6
//!   return v7
//! ```
//!
//! The head of a loop is written `block1(v7: scalar) trips=16:`. The terminators are `jump block1(v1)`,
//! `branch_if v2, block1(v1), block2`, `repeat block1(v9), block2` and `return v3`.

mod parse;
mod print;

pub use parse::{ParseError, parse};
