//! What fits into an instruction, and how a number that does not gets into a register.
//!
//! dynasmrt panics where an immediate cannot be encoded, so everything that `lower` emits has been asked here before.

use dynasmrt::aarch64::{encode_logical_immediate_32bit, encode_logical_immediate_64bit};

use super::inst::{Inst, Reg, Size};

/// Whether `add`, `sub` and `cmp` take the number: 12 bits, at the low end or 12 bits higher.
pub(super) fn is_arithmetic(imm: u64) -> bool {
    imm < 1 << 12 || (imm < 1 << 24 && imm.trailing_zeros() >= 12)
}

/// Whether `and`, `orr` and `eor` of this size take the number: one run of ones, rotated, in all parts of a power of two bits.
pub(super) fn is_mask(imm: u64, size: Size) -> bool {
    match size {
        Size::S32 => {
            u32::try_from(imm).is_ok_and(|imm| encode_logical_immediate_32bit(imm).is_some())
        }
        Size::S64 => encode_logical_immediate_64bit(imm).is_some(),
    }
}

/// Whether a load or store of `1 << log2` bytes takes the offset.
pub(super) fn is_offset(disp: u64, log2: u8) -> bool {
    disp < 256 || (disp >> log2 < 1 << 12 && is_multiple(disp, log2))
}

/// Whether a load or store of two vectors takes the offset.
pub(super) fn is_pair_offset(disp: u64) -> bool {
    disp < 1 << 10 && is_multiple(disp, 4)
}

fn is_multiple(disp: u64, log2: u8) -> bool {
    disp.trailing_zeros() >= log2.into()
}

/// Sets a general register to `imm`: one instruction where a 16-bit piece, its complement or a bit mask will do, and one
/// more for each further piece.
pub(super) fn constant(dst: Reg, imm: u64) -> Vec<Inst> {
    let pieces = |imm: u64| [0, 16, 32, 48].map(|shift| (shift, (imm >> shift) as u16));
    let only = |imm: u64| {
        let mut set = pieces(imm).into_iter().filter(|&(_, piece)| piece != 0);
        match (set.next(), set.next()) {
            (first, None) => Some(first.unwrap_or((0, 0))),
            _ => None,
        }
    };
    if let Some((shift, imm)) = only(imm) {
        return vec![Inst::MovZ { dst, imm, shift }];
    }
    let complement = match Size::of(imm) {
        Size::S32 => u64::from(!(imm as u32)),
        Size::S64 => !imm,
    };
    let size = Size::of(imm);
    if let Some((shift, imm)) = only(complement) {
        return vec![Inst::MovN {
            size,
            dst,
            imm,
            shift,
        }];
    }
    if is_mask(imm, size) {
        return vec![Inst::MovMask { size, dst, imm }];
    }
    let set = pieces(imm).into_iter().filter(|&(_, piece)| piece != 0);
    set.enumerate()
        .map(|(i, (shift, imm))| match i {
            0 => Inst::MovZ { dst, imm, shift },
            _ => Inst::MovK { dst, imm, shift },
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the instructions leave in the register.
    fn run(insts: &[Inst]) -> u64 {
        insts.iter().fold(0, |value, inst| match *inst {
            Inst::MovZ { imm, shift, .. } => u64::from(imm) << shift,
            Inst::MovN {
                size: Size::S32,
                imm,
                shift,
                ..
            } => u64::from(!(u32::from(imm) << shift)),
            Inst::MovN { imm, shift, .. } => !(u64::from(imm) << shift),
            Inst::MovK { imm, shift, .. } => value & !(0xffff << shift) | u64::from(imm) << shift,
            Inst::MovMask { imm, .. } => imm,
            other => panic!("{other:?} sets no constant"),
        })
    }

    #[test]
    fn constants_take_as_few_instructions_as_their_pieces_allow() {
        let dst = Reg::general(6);
        for (imm, len) in [
            (0, 1),
            (0xffff, 1),
            (0x1_0000, 1),
            (0x1234_0000_0000, 1),
            (0x1234_5678, 2),
            (0xffff_ffff, 1),
            (0xffff_1234, 1),
            (u64::MAX, 1),
            (u64::MAX - 1, 1),
            (0x00ff_00ff, 1),
            (0x0102_0304_0506_0708, 4),
            (0x8000_0000_0000_0001, 1),
            (0x1_0000_0000_0001, 2),
        ] {
            let insts = constant(dst, imm);
            assert_eq!((run(&insts), insts.len()), (imm, len), "{imm:#x}");
        }
    }

    #[test]
    fn immediates_at_the_border_of_what_fits() {
        let arithmetic = [
            (0xfff, true),
            (0x1000, true),
            (0x1001, false),
            (0xff_f000, true),
            (0x100_0000, false),
        ];
        assert_eq!(
            arithmetic.map(|(imm, _)| is_arithmetic(imm)),
            arithmetic.map(|(_, fits)| fits)
        );
        // All zeros and all ones are no masks.
        let masks = [
            (0, false),
            (1, true),
            (0xffff_ffff, false),
            (0xf0f0_f0f0, true),
            (0x1_0000_0000, false),
            (0b101, false),
        ];
        assert_eq!(
            masks.map(|(imm, _)| is_mask(imm, Size::S32)),
            masks.map(|(_, fits)| fits)
        );
        assert!(is_mask(0xffff_ffff, Size::S64) && !is_mask(u64::MAX, Size::S64));
        let offsets = [
            (255, true),
            (257, false),
            (260, true),
            (16380, true),
            (16384, false),
        ];
        assert_eq!(
            offsets.map(|(disp, _)| is_offset(disp, 2)),
            offsets.map(|(_, fits)| fits)
        );
        let pairs = [(1008, true), (1024, false), (8, false), (0, true)];
        assert_eq!(
            pairs.map(|(disp, _)| is_pair_offset(disp)),
            pairs.map(|(_, fits)| fits)
        );
    }
}
