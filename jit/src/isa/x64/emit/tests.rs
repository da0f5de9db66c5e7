//! Every instruction form is emitted with low and high registers and all kinds of operands, decoded by iced-x86, and
//! compared with what was meant: mnemonic, registers, addresses, immediates and sizes.

mod avx512;
mod shortest;

use std::collections::BTreeSet;

use dynasmrt::DynamicLabel;
use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use pktjit_ir::TableId;

use super::{Buffer, emit};
use crate::code::{CompiledCode, Entries, StackUse};
use crate::constant_pool::ConstantPool;
use crate::isa::x64::inst::{
    Address, Alu, Cond, Inst, Label, Narrow, Piece, Reg, Scale, Scan, Shift, Size, Source, Vector,
    VectorSource, Width,
};
use crate::target::Target;

/// General registers of the convention: with and without a REX bit, those whose byte form needs a REX prefix, and those
/// whose number means something else in an address (rbp, r12, r13).
const GENERAL: [u8; 9] = [0, 2, 5, 6, 7, 8, 11, 12, 13];
/// The stack pointer, as the base of an address.
const RSP: Reg = Reg::general(4);
const VECTOR: [u8; 4] = [0, 7, 8, 15];
const SIZES: [Size; 2] = [Size::S32, Size::S64];
const IMMEDIATES: [i32; 8] = [0, 1, -1, 127, -128, 128, i32::MAX, i32::MIN];

/// An operand as the decoder should see it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Operand {
    Reg(Register),
    Imm(i64),
    /// Base, index, scale, displacement and bytes.
    Mem(Register, Register, u32, i64, usize),
    /// Bytes at an offset of the pool.
    Pool(u64, usize),
    /// The jump goes to the end of the sample.
    Next,
}

use Operand::{Imm, Mem, Next, Pool};

fn general(size: Size, reg: Reg) -> Operand {
    let first = match size {
        Size::S32 => Register::EAX,
        Size::S64 => Register::RAX,
    };
    Operand::Reg(first + u32::from(reg.encoding()))
}

fn r32(reg: Reg) -> Operand {
    general(Size::S32, reg)
}

fn r64(reg: Reg) -> Operand {
    general(Size::S64, reg)
}

fn r8(reg: Reg) -> Operand {
    let encoding = u32::from(reg.encoding());
    // iced counts ah, ch, dh and bh between bl and spl.
    Operand::Reg(if encoding < 4 {
        Register::AL + encoding
    } else {
        Register::SPL + (encoding - 4)
    })
}

fn xmm(reg: Reg) -> Operand {
    Operand::Reg(Register::XMM0 + u32::from(reg.encoding()))
}

fn ymm(reg: Reg) -> Operand {
    Operand::Reg(Register::YMM0 + u32::from(reg.encoding()))
}

fn memory(address: Address, bytes: usize) -> Operand {
    let r64 = |reg: Reg| Register::RAX + u32::from(reg.encoding());
    match address {
        Address::Base { base, disp } => Mem(r64(base), Register::None, 1, disp.into(), bytes),
        Address::Indexed {
            base,
            index,
            scale,
            disp,
        } => {
            let scale = match scale {
                Scale::X1 => 1,
                Scale::X2 => 2,
                Scale::X4 => 4,
                Scale::X8 => 8,
            };
            Mem(r64(base), r64(index), scale, disp.into(), bytes)
        }
        Address::Pool { offset } => Pool(offset as u64, bytes),
    }
}

fn source(size: Size, source: Source) -> Operand {
    match source {
        Source::Reg(reg) => general(size, reg),
        Source::Imm(imm) => Imm(imm.into()),
        Source::Mem(address) => memory(address, if size == Size::S32 { 4 } else { 8 }),
    }
}

/// What an instruction means. A new instruction needs an arm here and a sample below.
fn meant(inst: Inst) -> (Mnemonic, Vec<Operand>) {
    use Mnemonic as M;
    match inst {
        Inst::Endbr => (M::Endbr64, vec![]),
        Inst::Vzeroupper => (M::Vzeroupper, vec![]),
        Inst::Ret => (M::Ret, vec![]),
        Inst::Jump { .. } => (M::Jmp, vec![Next]),
        Inst::JumpIf { cond, .. } => {
            let mnemonic = match cond {
                Cond::Equal => M::Je,
                Cond::NotEqual => M::Jne,
                Cond::Below => M::Jb,
                Cond::BelowOrEqual => M::Jbe,
                Cond::Above => M::Ja,
                Cond::AboveOrEqual => M::Jae,
            };
            (mnemonic, vec![Next])
        }
        Inst::Zero { dst } => (M::Xor, vec![r32(dst), r32(dst)]),
        Inst::MovImm { dst, imm } if imm <= u64::from(u32::MAX) => {
            (M::Mov, vec![r32(dst), Imm((imm as u32 as i32).into())])
        }
        Inst::MovImm { dst, imm } => (M::Mov, vec![r64(dst), Imm(imm as i64)]),
        Inst::TableAddress { dst, .. } => (M::Mov, vec![r64(dst), Imm(0)]),
        Inst::Mov { dst, src, size } => (M::Mov, vec![general(size, dst), general(size, src)]),
        // The same either way round; the decoder puts rax last, or else the ModRM operand first.
        Inst::Xchg { a, b } if b == Reg::general(0) => (M::Xchg, vec![r64(a), r64(b)]),
        Inst::Xchg { a, b } => (M::Xchg, vec![r64(b), r64(a)]),
        Inst::Lea { dst, address } => (M::Lea, vec![r64(dst), memory(address, 0)]),
        Inst::Load {
            dst,
            address,
            width,
        } => match width {
            Width::B1 => (M::Movzx, vec![r32(dst), memory(address, 1)]),
            Width::B2 => (M::Movzx, vec![r32(dst), memory(address, 2)]),
            Width::B4 => (M::Mov, vec![r32(dst), memory(address, 4)]),
            Width::B8 => (M::Mov, vec![r64(dst), memory(address, 8)]),
        },
        Inst::LoadSwapped { dst, address, size } => {
            let bytes = if size == Size::S32 { 4 } else { 8 };
            (M::Movbe, vec![general(size, dst), memory(address, bytes)])
        }
        Inst::Store { address, src } => (M::Mov, vec![memory(address, 4), r32(src)]),
        Inst::Prefetch { address } => (M::Prefetcht0, vec![memory(address, 1)]),
        Inst::OrMemory { address, src } => {
            (M::Or, vec![memory(address, 4), source(Size::S32, src)])
        }
        Inst::Push { reg } => (M::Push, vec![r64(reg)]),
        Inst::Pop { reg } => (M::Pop, vec![r64(reg)]),
        Inst::Bswap { dst, size } => (M::Bswap, vec![general(size, dst)]),
        Inst::SwapLowBytes { dst } => {
            let low = Operand::Reg(Register::AX + u32::from(dst.encoding()));
            (M::Rol, vec![low, Imm(8)])
        }
        Inst::Alu { op, size, dst, src } => {
            let mnemonic = match op {
                Alu::Add => M::Add,
                Alu::Sub => M::Sub,
                Alu::And => M::And,
                Alu::Or => M::Or,
                Alu::Xor => M::Xor,
            };
            (mnemonic, vec![general(size, dst), source(size, src)])
        }
        Inst::Cmp { size, a, b } => (M::Cmp, vec![general(size, a), source(size, b)]),
        Inst::TestSelf { size, a } => (M::Test, vec![general(size, a), general(size, a)]),
        Inst::Dec { dst } => (M::Dec, vec![r64(dst)]),
        Inst::Shift { op, size, dst, by } => {
            let mnemonic = match op {
                Shift::Left => M::Shl,
                Shift::Right => M::Shr,
            };
            (mnemonic, vec![general(size, dst), Imm(by.into())])
        }
        Inst::Mul { size, dst, src } => (M::Imul, vec![general(size, dst), general(size, src)]),
        Inst::MulImm {
            size,
            dst,
            src,
            imm,
        } => (
            M::Imul,
            vec![general(size, dst), general(size, src), Imm(imm.into())],
        ),
        Inst::Pext {
            size,
            dst,
            src,
            mask,
        } => (
            M::Pext,
            vec![general(size, dst), general(size, src), general(size, mask)],
        ),
        Inst::ClearLowestBit { size, dst, src } => {
            (M::Blsr, vec![general(size, dst), general(size, src)])
        }
        Inst::Scan { op, size, dst, src } => {
            let mnemonic = match op {
                Scan::Tzcnt => M::Tzcnt,
                Scan::Bsf => M::Bsf,
            };
            (mnemonic, vec![general(size, dst), general(size, src)])
        }
        Inst::Cmov {
            cond,
            size,
            dst,
            src,
        } => {
            let mnemonic = match cond {
                Cond::Equal => M::Cmove,
                Cond::NotEqual => M::Cmovne,
                Cond::Below => M::Cmovb,
                Cond::BelowOrEqual => M::Cmovbe,
                Cond::Above => M::Cmova,
                Cond::AboveOrEqual => M::Cmovae,
            };
            (mnemonic, vec![general(size, dst), general(size, src)])
        }
        Inst::Set { cond, dst } => {
            let mnemonic = match cond {
                Cond::Equal => M::Sete,
                Cond::NotEqual => M::Setne,
                Cond::Below => M::Setb,
                Cond::BelowOrEqual => M::Setbe,
                Cond::Above => M::Seta,
                Cond::AboveOrEqual => M::Setae,
            };
            (mnemonic, vec![r8(dst)])
        }
        Inst::ZeroExtendByte { dst } => (M::Movzx, vec![r32(dst), r8(dst)]),
        Inst::VectorMov { dst, src } => (M::Vmovdqa, vec![ymm(dst), ymm(src)]),
        Inst::VectorLoad { dst, address } => (M::Vmovdqu, vec![ymm(dst), memory(address, 32)]),
        Inst::VectorStore { address, src } => (M::Vmovdqu, vec![memory(address, 32), ymm(src)]),
        Inst::VectorZero { dst } => (M::Vpxor, vec![xmm(dst), xmm(dst), xmm(dst)]),
        Inst::Broadcast { dst, src } => (M::Vpbroadcastd, vec![ymm(dst), xmm(src)]),
        Inst::BroadcastLoad {
            dst,
            address,
            piece,
        } => {
            let (mnemonic, bytes) = match piece {
                Piece::B1 => (M::Vpbroadcastb, 1),
                Piece::B2 => (M::Vpbroadcastw, 2),
                Piece::B4 => (M::Vpbroadcastd, 4),
            };
            (mnemonic, vec![ymm(dst), memory(address, bytes)])
        }
        Inst::WidenLoad {
            dst,
            address,
            narrow,
        } => {
            let (mnemonic, bytes) = match narrow {
                Narrow::B1 => (M::Vpmovzxbd, 8),
                Narrow::B2 => (M::Vpmovzxwd, 16),
            };
            (mnemonic, vec![ymm(dst), memory(address, bytes)])
        }
        Inst::Vector { op, dst, a, b } => {
            let mnemonic = match op {
                Vector::And => M::Vpand,
                Vector::AndNot => M::Vpandn,
                Vector::Or => M::Vpor,
                Vector::Xor => M::Vpxor,
                Vector::SubD => M::Vpsubd,
                Vector::SubW => M::Vpsubw,
                Vector::MinUD => M::Vpminud,
                Vector::MinUW => M::Vpminuw,
                Vector::CmpEqD => M::Vpcmpeqd,
                Vector::ShufB => M::Vpshufb,
            };
            let b = match b {
                VectorSource::Reg(b) => ymm(b),
                VectorSource::Mem(address) => memory(address, 32),
            };
            (mnemonic, vec![ymm(dst), ymm(a), b])
        }
        Inst::ToVector { dst, src } => (M::Vmovd, vec![xmm(dst), r32(src)]),
        Inst::ToScalar { dst, src } => (M::Vmovd, vec![r32(dst), xmm(src)]),
        Inst::LaneBits { dst, src } => (M::Vmovmskps, vec![r32(dst), ymm(src)]),
        Inst::UpperHalf { dst, src } => (M::Vextracti128, vec![xmm(dst), ymm(src), Imm(1)]),
        Inst::Shuffle128 { dst, src, imm } => {
            (M::Vpshufd, vec![xmm(dst), xmm(src), Imm(imm.into())])
        }
        Inst::Min128 { dst, a, b } => (M::Vpminud, vec![xmm(dst), xmm(a), xmm(b)]),
        Inst::Avx512 { inst } => avx512::meant(inst),
    }
}

/// Addresses of every kind: displacements of no byte, of one and of four, all scales, low and high registers.
fn addresses() -> Vec<Address> {
    let mut all = vec![Address::Pool { offset: 0 }, Address::Pool { offset: 96 }];
    for base in GENERAL.map(Reg::general).into_iter().chain([RSP]) {
        all.extend(
            [0, 127, 128, -128, -129, i32::MAX, i32::MIN].map(|disp| Address::Base { base, disp }),
        );
        for index in GENERAL.map(Reg::general) {
            let disps = [0, 127, -129, 0x1234];
            all.extend(
                std::iter::zip(Scale::ALL, disps).map(|(&scale, disp)| Address::Indexed {
                    base,
                    index,
                    scale,
                    disp,
                }),
            );
        }
    }
    all
}

/// Instructions of every form.
fn samples() -> Vec<Inst> {
    let to = Label(0);
    let mut all = vec![Inst::Endbr, Inst::Vzeroupper, Inst::Ret, Inst::Jump { to }];
    all.extend(Cond::ALL.iter().map(|&cond| Inst::JumpIf { cond, to }));
    for dst in GENERAL.map(Reg::general) {
        one_register(dst, &mut all);
        for address in addresses() {
            all.push(Inst::Lea { dst, address });
            all.push(Inst::OrMemory {
                address,
                src: Source::Reg(dst),
            });
            all.push(Inst::Store { address, src: dst });
            all.extend(Width::ALL.iter().map(|&width| Inst::Load {
                dst,
                address,
                width,
            }));
            for size in SIZES {
                let src = Source::Mem(address);
                all.push(Inst::LoadSwapped { dst, address, size });
                all.push(Inst::Cmp {
                    size,
                    a: dst,
                    b: src,
                });
                all.extend(Alu::ALL.iter().map(|&op| Inst::Alu { op, size, dst, src }));
            }
        }
        for src in GENERAL.map(Reg::general) {
            two_registers(dst, src, &mut all);
        }
        for src in VECTOR.map(Reg::vector) {
            all.push(Inst::ToVector { dst: src, src: dst });
            all.push(Inst::ToScalar { dst, src });
            all.push(Inst::LaneBits { dst, src });
        }
    }
    for address in addresses() {
        all.push(Inst::Prefetch { address });
        all.extend(
            IMMEDIATES
                .map(Source::Imm)
                .map(|src| Inst::OrMemory { address, src }),
        );
    }
    vectors(&mut all);
    all.extend(avx512::samples().into_iter().map(Inst::from));
    all
}

fn one_register(dst: Reg, all: &mut Vec<Inst>) {
    let table = TableId::new(0);
    all.extend([
        Inst::Zero { dst },
        Inst::TableAddress { dst, table },
        Inst::SwapLowBytes { dst },
        Inst::Dec { dst },
        Inst::Push { reg: dst },
        Inst::Pop { reg: dst },
        Inst::ZeroExtendByte { dst },
    ]);
    let wide = [1, 0x7fff_ffff, 0xffff_ffff, 1 << 32, 1 << 63, u64::MAX];
    all.extend(wide.map(|imm| Inst::MovImm { dst, imm }));
    all.extend(Cond::ALL.iter().map(|&cond| Inst::Set { cond, dst }));
    for size in SIZES {
        all.push(Inst::Bswap { dst, size });
        all.push(Inst::TestSelf { size, a: dst });
        for by in [1, 31] {
            all.extend(
                Shift::ALL
                    .iter()
                    .map(|&op| Inst::Shift { op, size, dst, by }),
            );
        }
        for src in IMMEDIATES.map(Source::Imm) {
            all.extend(Alu::ALL.iter().map(|&op| Inst::Alu { op, size, dst, src }));
            all.push(Inst::Cmp {
                size,
                a: dst,
                b: src,
            });
        }
    }
}

fn two_registers(dst: Reg, src: Reg, all: &mut Vec<Inst>) {
    // Swapping a register with itself is `nop` to a decoder.
    if dst != src {
        all.push(Inst::Xchg { a: dst, b: src });
    }
    for size in SIZES {
        let from = Source::Reg(src);
        all.push(Inst::Mov { dst, src, size });
        all.push(Inst::Mul { size, dst, src });
        all.push(Inst::ClearLowestBit { size, dst, src });
        all.push(Inst::Cmp {
            size,
            a: dst,
            b: from,
        });
        all.extend(Alu::ALL.iter().map(|&op| Inst::Alu {
            op,
            size,
            dst,
            src: from,
        }));
        all.extend(
            Scan::ALL
                .iter()
                .map(|&op| Inst::Scan { op, size, dst, src }),
        );
        all.extend(Cond::ALL.iter().map(|&cond| Inst::Cmov {
            cond,
            size,
            dst,
            src,
        }));
        all.extend(IMMEDIATES.map(|imm| Inst::MulImm {
            size,
            dst,
            src,
            imm,
        }));
        all.extend(GENERAL.map(Reg::general).map(|mask| Inst::Pext {
            size,
            dst,
            src,
            mask,
        }));
    }
}

fn vectors(all: &mut Vec<Inst>) {
    for dst in VECTOR.map(Reg::vector) {
        all.push(Inst::VectorZero { dst });
        for address in addresses() {
            all.push(Inst::VectorLoad { dst, address });
            all.push(Inst::VectorStore { address, src: dst });
            all.extend(Piece::ALL.iter().map(|&piece| Inst::BroadcastLoad {
                dst,
                address,
                piece,
            }));
            all.extend(Narrow::ALL.iter().map(|&narrow| Inst::WidenLoad {
                dst,
                address,
                narrow,
            }));
            for a in VECTOR.map(Reg::vector) {
                let b = VectorSource::Mem(address);
                all.extend(Vector::ALL.iter().map(|&op| Inst::Vector { op, dst, a, b }));
            }
        }
        for src in VECTOR.map(Reg::vector) {
            all.push(Inst::VectorMov { dst, src });
            all.push(Inst::Broadcast { dst, src });
            all.push(Inst::UpperHalf { dst, src });
            all.extend([0, 0xee, 0x55].map(|imm| Inst::Shuffle128 { dst, src, imm }));
            for b in VECTOR.map(Reg::vector) {
                all.push(Inst::Min128 { dst, a: src, b });
                let b = VectorSource::Reg(b);
                all.extend(
                    Vector::ALL
                        .iter()
                        .map(|&op| Inst::Vector { op, dst, a: src, b }),
                );
            }
        }
    }
}

/// Emits all of `insts`, one after the other, and decodes them; with where the pool is.
fn emit_all(insts: &[Inst]) -> (Vec<Instruction>, u64) {
    let (code, decoded) = emit_code(insts);
    (decoded, code.pool_offset() as u64)
}

fn emit_code(insts: &[Inst]) -> (CompiledCode, Vec<Instruction>) {
    let mut buffer = Buffer::new(0xcc);
    let mut starts = Vec::new();
    for inst in insts {
        starts.push(buffer.len());
        let next: DynamicLabel = buffer.label();
        emit(&mut buffer, inst, &[next]);
        buffer.bind(next);
    }
    let end = buffer.len();
    let entries = Entries {
        lookup: 0,
        lookup_batch: 0,
        lookup_batch_ptrs: 0,
    };
    let code = buffer
        .finish(
            ConstantPool::new(&[]),
            entries,
            Target::x86_64_avx2(),
            1,
            StackUse::LEAF,
        )
        .expect("all labels are bound");
    let decoder = Decoder::with_ip(64, &code.bytes()[..end], 0, DecoderOptions::NONE);
    let decoded: Vec<Instruction> = decoder.into_iter().collect();
    let found: Vec<usize> = decoded.iter().map(|i| i.ip() as usize).collect();
    assert_eq!(found, starts, "an instruction is not where it was emitted");
    (code, decoded)
}

fn decoded_operands(inst: &Instruction, pool: u64) -> Vec<Operand> {
    (0..inst.op_count())
        .map(|i| match inst.op_kind(i) {
            OpKind::Register => Operand::Reg(inst.op_register(i)),
            OpKind::Memory if inst.is_ip_rel_memory_operand() => Pool(
                inst.ip_rel_memory_address() - pool,
                inst.memory_size().size(),
            ),
            OpKind::Memory => Mem(
                inst.memory_base(),
                inst.memory_index(),
                inst.memory_index_scale(),
                inst.memory_displacement64() as i64,
                inst.memory_size().size(),
            ),
            OpKind::NearBranch64 => {
                assert_eq!(inst.near_branch64(), inst.next_ip(), "{inst:?}");
                Next
            }
            // iced gives 32-bit immediates without their sign.
            OpKind::Immediate32 => Imm((inst.immediate32() as i32).into()),
            _ => Imm(inst.immediate(i) as i64),
        })
        .collect()
}

#[test]
fn every_form_decodes_to_what_was_meant() {
    let samples = samples();
    let (decoded, pool) = emit_all(&samples);
    for (inst, decoded) in samples.iter().zip(&decoded) {
        let (mnemonic, operands) = meant(*inst);
        assert_eq!(decoded.mnemonic(), mnemonic, "{inst:?}");
        assert_eq!(decoded_operands(decoded, pool), operands, "{inst:?}");
    }
}

#[test]
fn there_is_a_sample_of_every_form() {
    let sampled: BTreeSet<String> = samples()
        .iter()
        .map(|inst| format!("{inst:?}"))
        .map(|text| text.split(' ').next().unwrap_or_default().to_owned())
        .collect();
    let forms: BTreeSet<String> = Inst::FORMS.iter().map(ToString::to_string).collect();
    assert_eq!(sampled, forms);
}
