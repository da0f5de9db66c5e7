//! The index of a staged row.

use super::Lowering;
use crate::isa::a64::abi::RESULT_IN_BLOCK;
use crate::isa::a64::immediate::is_mask;
use crate::isa::a64::inst::{Alu, Cond, Inst, Operand, Reg, Size, Width};

/// Staged rows.
impl Lowering<'_> {
    /// `dst` = what is where the result of the key will be, or `max` if that is less.
    pub(super) fn read_staged_index(&mut self, dst: Reg, max: u64) {
        let (read, size) = (self.general(), Size::S32);
        self.push(Inst::Load {
            dst: read,
            address: RESULT_IN_BLOCK,
            width: Width::B4,
        });
        if (max + 1).is_power_of_two() && is_mask(max, size) {
            self.push(Inst::Alu {
                op: Alu::And,
                size,
                dst,
                a: read,
                b: Operand::Imm(max),
            });
        } else {
            let b = self.set(max);
            self.push(Inst::Cmp {
                size,
                a: read,
                b: Operand::Reg(b),
            });
            self.push(Inst::Select {
                cond: Cond::Below,
                size,
                dst,
                a: read,
                b,
            });
        }
    }
}
