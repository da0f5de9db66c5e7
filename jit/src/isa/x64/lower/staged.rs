//! The index of a staged row.

use super::Lowering;
use crate::isa::x64::abi::RESULT_IN_BLOCK;
use crate::isa::x64::inst::{Alu, Cond, Inst, Reg, Size, Source, Width};

/// Staged rows.
impl Lowering<'_> {
    /// `dst` = what is where the result of the key will be, or `max` if that is less.
    pub(super) fn read_staged_index(&mut self, dst: Reg, max: u64) {
        let size = Size::S32;
        self.push(Inst::Load {
            dst,
            address: RESULT_IN_BLOCK,
            width: Width::B4,
        });
        if (max + 1).is_power_of_two()
            && let Some(mask) = size.immediate(max)
        {
            let (op, src) = (Alu::And, Source::Imm(mask));
            self.push(Inst::Alu { op, size, dst, src });
        } else {
            let src = self.set(max);
            let b = Source::Reg(src);
            self.push(Inst::Cmp { size, a: dst, b });
            let cond = Cond::Above;
            self.push(Inst::Cmov {
                cond,
                size,
                dst,
                src,
            });
        }
    }
}
