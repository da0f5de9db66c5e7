//! What register assignment has to know of x86-64: how registers are copied, swapped and set.

use super::evex::{Avx512, LaneSource, Lanes, Lanewise, MaskOp};
use super::inst::{Class, Inst, Reg, Role, Size, Vector, VectorSource};
use crate::isa::regs::MachineInst;

impl MachineInst for Inst {
    fn for_each_operand(&mut self, f: impl FnMut(Class, Role, &mut Reg)) {
        self.for_each_operand(f);
    }

    fn as_copy(&self) -> Option<(Reg, Reg)> {
        match *self {
            Self::Mov { dst, src, .. }
            | Self::VectorMov { dst, src }
            | Self::Avx512 {
                inst: Avx512::Mov { dst, src } | Avx512::MaskMov { dst, src },
            } => Some((dst, src)),
            _ => None,
        }
    }

    fn copy(class: Class, dst: Reg, src: Reg) -> Self {
        copy(class, dst, src)
    }

    fn swap(class: Class, a: Reg, b: Reg) -> Vec<Self> {
        match class {
            Class::General => vec![Self::Xchg { a, b }],
            _ => swap_without_third(class, a, b).into(),
        }
    }

    fn constant(dst: Reg, imm: u64) -> Vec<Self> {
        vec![match imm {
            0 => Self::Zero { dst },
            imm => Self::MovImm { dst, imm },
        }]
    }
}

/// `dst = src`, all that the class has of them.
pub(super) fn copy(class: Class, dst: Reg, src: Reg) -> Inst {
    match class {
        Class::General => Inst::Mov {
            dst,
            src,
            size: Size::S64,
        },
        Class::Vector => Inst::VectorMov { dst, src },
        Class::Wide => Avx512::Mov { dst, src }.into(),
        Class::Mask => Avx512::MaskMov { dst, src }.into(),
    }
}

/// Swaps two registers of a class that has no instruction for it, without a third.
fn swap_without_third(class: Class, x: Reg, y: Reg) -> [Inst; 3] {
    let xor = |dst: Reg, other: Reg| match class {
        Class::Mask => Avx512::MaskOp {
            op: MaskOp::Xor,
            dst,
            a: dst,
            b: other,
        }
        .into(),
        Class::Wide => Avx512::Lanewise {
            op: Lanewise::Xor,
            lanes: Lanes::X16,
            dst,
            a: dst,
            b: LaneSource::Reg(other),
        }
        .into(),
        Class::General | Class::Vector => Inst::Vector {
            op: Vector::Xor,
            dst,
            a: dst,
            b: VectorSource::Reg(other),
        },
    };
    [xor(x, y), xor(y, x), xor(x, y)]
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use quickcheck::{Gen, QuickCheck};

    use super::*;
    use crate::isa::regs::{MoveSource, sequence};

    /// What is in each register, by name of where it was at first; constants are negative.
    type File = HashMap<Reg, i64>;

    fn run(insts: &[Inst], file: &mut File) {
        for inst in insts {
            match *inst {
                Inst::Mov { dst, src, .. } | Inst::VectorMov { dst, src } => {
                    file.insert(dst, file[&src]);
                }
                Inst::Xchg { a, b } => {
                    let (x, y) = (file[&a], file[&b]);
                    file.extend([(a, y), (b, x)]);
                }
                Inst::Vector {
                    op: Vector::Xor,
                    dst,
                    a,
                    b: VectorSource::Reg(b),
                } => {
                    file.insert(dst, file[&a] ^ file[&b]);
                }
                Inst::MovImm { dst, imm } => {
                    file.insert(dst, -(imm as i64));
                }
                other => panic!("{other:?} is no move"),
            }
        }
    }

    /// Each destination has what its source had before all moves. A choice is the source for the register of its position:
    /// 0 to 4 a register, 5 no move, 6 and 7 a constant, which general registers alone can be set to.
    fn moves_happen_at_once(class: Class, reg: fn(u8) -> Reg, choices: &[u8]) -> bool {
        let before: File = (0..5).map(|i| (reg(i), i64::from(i) + 1)).collect();
        let mut expected = before.clone();
        let mut moves = Vec::new();
        for (i, choice) in choices.iter().take(5).enumerate() {
            let dst = reg(i as u8);
            match choice % 8 {
                src @ 0..=4 => {
                    moves.push((class, dst, MoveSource::Reg(reg(src))));
                    expected.insert(dst, before[&reg(src)]);
                }
                imm @ (6 | 7) if class == Class::General => {
                    moves.push((class, dst, MoveSource::Const(u64::from(imm))));
                    expected.insert(dst, -i64::from(imm));
                }
                _ => {}
            }
        }
        let mut after = before;
        run(&sequence(moves), &mut after);
        after == expected
    }

    fn qc_moves_happen_at_once(choices: Vec<u8>) -> bool {
        moves_happen_at_once(Class::General, Reg::general, &choices)
            && moves_happen_at_once(Class::Vector, Reg::vector, &choices)
    }

    #[test]
    fn qc_parallel_moves() {
        QuickCheck::new()
            .rng(Gen::from_size_and_seed(8, 1))
            .tests(5000)
            .min_tests_passed(5000)
            .quickcheck(qc_moves_happen_at_once as fn(Vec<u8>) -> bool);
    }

    #[test]
    fn a_cycle_of_two_is_one_exchange() {
        let (a, b) = (Reg::general(0), Reg::general(2));
        let moves = vec![
            (Class::General, a, MoveSource::Reg(b)),
            (Class::General, b, MoveSource::Reg(a)),
        ];
        assert_eq!(sequence::<Inst>(moves), [Inst::Xchg { a, b }]);
    }
}
