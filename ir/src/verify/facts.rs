//! What is known about the result of a scalar operation, given what is known about its operands.

use super::ValueFacts;
use crate::program::{BinaryOp, Type};

/// The number whose `bits` low bits are set, all of them for 64 and more.
pub(super) fn low_bits(bits: u32) -> u64 {
    u64::MAX
        .checked_shr(64u32.saturating_sub(bits))
        .unwrap_or(0)
}

/// The number of all bits that a number up to `max` can have.
fn all_bits(max: u64) -> u64 {
    low_bits(64 - max.leading_zeros())
}

pub(super) fn binary(op: BinaryOp, a: ValueFacts, b: ValueFacts) -> ValueFacts {
    let (max, ones) = match op {
        BinaryOp::And => (a.max.min(b.max), a.ones & b.ones),
        BinaryOp::Or => (
            all_bits(a.max | b.max).min(a.max.saturating_add(b.max)),
            a.ones | b.ones,
        ),
        BinaryOp::Xor => (all_bits(a.max | b.max).min(a.max.saturating_add(b.max)), 0),
        BinaryOp::Add => (a.max.saturating_add(b.max), 0),
        BinaryOp::Sub => (u64::MAX, 0),
        BinaryOp::Mul => (a.max.saturating_mul(b.max), 0),
        BinaryOp::Min => (a.max.min(b.max), 0),
        BinaryOp::Max => (a.max.max(b.max), 0),
        BinaryOp::Pext => {
            // A constant mask has its bits both certain and as its maximum.
            let bits = if b.ones == b.max {
                b.max.count_ones()
            } else {
                64 - b.max.leading_zeros()
            };
            (low_bits(bits).min(all_bits(a.max)), 0)
        }
    };
    ValueFacts {
        ty: Type::Scalar,
        max,
        ones,
    }
}
