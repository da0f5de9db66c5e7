//! What register assignment has to know of AArch64: how registers are copied, swapped and set.

use super::immediate;
use super::inst::{Alu, Class, Inst, Operand, Reg, Role, Size, Vector};
use crate::isa::regs::MachineInst;

impl MachineInst for Inst {
    fn for_each_operand(&mut self, f: impl FnMut(Class, Role, &mut Reg)) {
        self.for_each_operand(f);
    }

    fn as_copy(&self) -> Option<(Reg, Reg)> {
        match *self {
            Self::Mov { dst, src, .. } | Self::VectorMov { dst, src } => Some((dst, src)),
            _ => None,
        }
    }

    fn copy(class: Class, dst: Reg, src: Reg) -> Self {
        match class {
            Class::General => Self::Mov {
                size: Size::S64,
                dst,
                src,
            },
            _ => Self::VectorMov { dst, src },
        }
    }

    fn swap(class: Class, a: Reg, b: Reg) -> Vec<Self> {
        let xor = |dst: Reg, other: Reg| match class {
            Class::General => Self::Alu {
                op: Alu::Xor,
                size: Size::S64,
                dst,
                a: dst,
                b: Operand::Reg(other),
            },
            _ => Self::Vector {
                op: Vector::Xor,
                dst,
                a: dst,
                b: other,
            },
        };
        vec![xor(a, b), xor(b, a), xor(a, b)]
    }

    fn constant(dst: Reg, imm: u64) -> Vec<Self> {
        immediate::constant(dst, imm)
    }
}
