//! The same for AVX-512: what else EVEX says (masks, repeated operands, short displacements), and a second opinion by objdump.

use std::collections::BTreeSet;
use std::process::Command;

use iced_x86::{Formatter, IntelFormatter};

use super::*;
use crate::isa::x64::evex::{Avx512, Comparison, LaneSource, Lanes, Lanewise, MaskOp};

const MASK: [u8; 3] = [1, 5, 7];

fn zmm(reg: Reg) -> Operand {
    Operand::Reg(Register::ZMM0 + u32::from(reg.encoding()))
}

fn k(reg: Reg) -> Operand {
    Operand::Reg(Register::K0 + u32::from(reg.encoding()))
}

fn lanes_of(lanes: Lanes, reg: Reg) -> Operand {
    match lanes {
        Lanes::X8 => ymm(reg),
        Lanes::X16 => zmm(reg),
    }
}

fn lane_source(lanes: Lanes, source: LaneSource) -> Operand {
    match (source, lanes) {
        (LaneSource::Reg(reg), _) => lanes_of(lanes, reg),
        (LaneSource::Mem(address), Lanes::X8) => memory(address, 32),
        (LaneSource::Mem(address), Lanes::X16) => memory(address, 64),
        (LaneSource::Splat(address), _) => memory(address, 4),
    }
}

/// What an instruction means, but for masks and repeated operands, which are [`extras`].
pub(super) fn meant(inst: Avx512) -> (Mnemonic, Vec<Operand>) {
    use Mnemonic as M;
    match inst {
        Avx512::Mov { dst, src } => (M::Vmovdqa32, vec![zmm(dst), zmm(src)]),
        Avx512::Load { dst, address } => (M::Vmovdqu32, vec![zmm(dst), memory(address, 64)]),
        Avx512::Broadcast { lanes, dst, src } => {
            (M::Vpbroadcastd, vec![lanes_of(lanes, dst), r32(src)])
        }
        Avx512::BroadcastLoad {
            dst,
            address,
            piece,
        } => match piece {
            Piece::B1 => (M::Vpbroadcastb, vec![zmm(dst), memory(address, 1)]),
            Piece::B2 => (M::Vpbroadcastw, vec![zmm(dst), memory(address, 2)]),
            Piece::B4 => (M::Vpbroadcastd, vec![zmm(dst), memory(address, 4)]),
        },
        Avx512::WidenLoad {
            dst,
            address,
            narrow,
        } => match narrow {
            Narrow::B1 => (M::Vpmovzxbd, vec![zmm(dst), memory(address, 16)]),
            Narrow::B2 => (M::Vpmovzxwd, vec![zmm(dst), memory(address, 32)]),
        },
        Avx512::Ones { lanes, dst } => {
            let dst = lanes_of(lanes, dst);
            let operands = vec![dst.clone(), dst.clone(), dst, Imm(0xff)];
            (M::Vpternlogd, operands)
        }
        Avx512::Lanewise {
            op,
            lanes,
            dst,
            a,
            b,
        } => {
            let mnemonic = match op {
                Lanewise::And => M::Vpandd,
                Lanewise::Xor => M::Vpxord,
                Lanewise::Sub => M::Vpsubd,
                Lanewise::SubHalves => M::Vpsubw,
                Lanewise::MinHalves => M::Vpminuw,
                Lanewise::ShuffleBytes => M::Vpshufb,
            };
            let operands = [lanes_of(lanes, dst), lanes_of(lanes, a)];
            let operands = operands.into_iter().chain([lane_source(lanes, b)]);
            (mnemonic, operands.collect())
        }
        Avx512::MaskedMin {
            lanes, dst, src, ..
        } => {
            let dst = lanes_of(lanes, dst);
            (M::Vpminud, vec![dst.clone(), dst, lane_source(lanes, src)])
        }
        Avx512::UpperHalf { dst, src } => (M::Vextracti64x4, vec![ymm(dst), zmm(src), Imm(1)]),
        Avx512::Compare {
            op,
            lanes,
            dst,
            a,
            b,
            ..
        } => {
            let (mnemonic, predicate) = match op {
                Comparison::Equal => (M::Vpcmpeqd, None),
                Comparison::AtMost => (M::Vpcmpud, Some(Imm(2))),
                // Not less than.
                Comparison::AtLeast => (M::Vpcmpud, Some(Imm(5))),
                Comparison::Disjoint => (M::Vptestnmd, None),
            };
            let operands = [k(dst), lanes_of(lanes, a), lane_source(lanes, b)];
            (mnemonic, operands.into_iter().chain(predicate).collect())
        }
        Avx512::MaskMov { dst, src } => (M::Kmovw, vec![k(dst), k(src)]),
        Avx512::MaskOp { op, dst, a, b } => {
            let mnemonic = match op {
                MaskOp::And => M::Kandw,
                MaskOp::AndNot => M::Kandnw,
                MaskOp::Or => M::Korw,
                MaskOp::Xor => M::Kxorw,
            };
            (mnemonic, vec![k(dst), k(a), k(b)])
        }
        Avx512::MaskBits { lanes, dst, src } => {
            let mnemonic = match lanes {
                Lanes::X8 => M::Kmovb,
                Lanes::X16 => M::Kmovw,
            };
            (mnemonic, vec![r32(dst), k(src)])
        }
    }
}

/// The mask under which an instruction works, and whether its operand in memory is repeated.
fn extras(inst: Avx512) -> (Register, bool) {
    let register = |mask: Option<Reg>| match mask {
        Some(mask) => Register::K0 + u32::from(mask.encoding()),
        None => Register::None,
    };
    let is_splat = |source| matches!(source, LaneSource::Splat(_));
    match inst {
        Avx512::Lanewise { b, .. } => (Register::None, is_splat(b)),
        Avx512::MaskedMin { mask, src, .. } => (register(Some(mask)), is_splat(src)),
        Avx512::Compare { under, b, .. } => (register(under), is_splat(b)),
        _ => (Register::None, false),
    }
}

/// Displacements that are, or are nearly, multiples of what an instruction reads.
fn near_addresses() -> Vec<Address> {
    let base = Reg::general(8);
    let mut all = addresses();
    for unit in [1, 2, 4, 32, 64] {
        let disps = [1, -1, 127, 128, -128, -129].map(|n| n * unit);
        all.extend(disps.map(|disp| Address::Base { base, disp }));
        all.extend(disps.map(|disp| Address::Indexed {
            base,
            index: Reg::general(13),
            scale: Scale::X8,
            disp,
        }));
    }
    all
}

/// Instructions of every form.
pub(super) fn samples() -> Vec<Avx512> {
    let mut all = Vec::new();
    for dst in VECTOR.map(Reg::vector) {
        all.extend(Lanes::ALL.iter().map(|&lanes| Avx512::Ones { lanes, dst }));
        for src in VECTOR.map(Reg::vector) {
            all.extend([Avx512::Mov { dst, src }, Avx512::UpperHalf { dst, src }]);
            for b in VECTOR.map(Reg::vector) {
                lanewise(dst, src, LaneSource::Reg(b), &mut all);
            }
        }
        for src in GENERAL.map(Reg::general) {
            let broadcast = |&lanes| Avx512::Broadcast { lanes, dst, src };
            all.extend(Lanes::ALL.iter().map(broadcast));
        }
    }
    let mut registers = VECTOR.map(Reg::vector).into_iter().cycle();
    for address in near_addresses() {
        // One pair of registers an address: how they are encoded does not depend on it.
        let (Some(dst), Some(a)) = (registers.next(), registers.nth(1)) else {
            continue;
        };
        all.push(Avx512::Load { dst, address });
        all.extend(Piece::ALL.iter().map(|&piece| Avx512::BroadcastLoad {
            dst,
            address,
            piece,
        }));
        all.extend(Narrow::ALL.iter().map(|&narrow| Avx512::WidenLoad {
            dst,
            address,
            narrow,
        }));
        lanewise(dst, a, LaneSource::Mem(address), &mut all);
        lanewise(dst, a, LaneSource::Splat(address), &mut all);
    }
    for dst in MASK.map(Reg::mask) {
        for a in MASK.map(Reg::mask) {
            all.push(Avx512::MaskMov { dst, src: a });
            for b in MASK.map(Reg::mask) {
                let op = |&op| Avx512::MaskOp { op, dst, a, b };
                all.extend(MaskOp::ALL.iter().map(op));
            }
        }
        for general in GENERAL.map(Reg::general) {
            all.extend(Lanes::ALL.iter().map(|&lanes| Avx512::MaskBits {
                lanes,
                dst: general,
                src: dst,
            }));
        }
    }
    all
}

/// All that has two operands in lanes.
fn lanewise(dst: Reg, a: Reg, b: LaneSource, all: &mut Vec<Avx512>) {
    let mut masks = MASK.map(Reg::mask).into_iter().cycle();
    let mut mask = || masks.next().unwrap_or(Reg::mask(1));
    for &lanes in Lanes::ALL {
        for &op in Lanewise::ALL {
            // Bytes are not repeated.
            let has_lanes = matches!(op, Lanewise::And | Lanewise::Xor | Lanewise::Sub);
            if !has_lanes && matches!(b, LaneSource::Splat(_)) {
                continue;
            }
            all.push(Avx512::Lanewise {
                op,
                lanes,
                dst,
                a,
                b,
            });
        }
        all.push(Avx512::MaskedMin {
            lanes,
            dst,
            mask: mask(),
            src: b,
        });
        for &op in Comparison::ALL {
            for under in [None, Some(mask())] {
                all.push(Avx512::Compare {
                    op,
                    lanes,
                    dst: mask(),
                    under,
                    a,
                    b,
                });
            }
        }
    }
}

fn emitted() -> (Vec<Avx512>, Vec<Instruction>) {
    let samples = samples();
    let insts: Vec<Inst> = samples.iter().copied().map(Inst::from).collect();
    let (decoded, _) = emit_all(&insts);
    (samples, decoded)
}

#[test]
fn masks_and_repeated_operands_are_those_that_were_meant() {
    let (samples, decoded) = emitted();
    for (inst, decoded) in samples.into_iter().zip(decoded) {
        let found = (decoded.op_mask(), decoded.is_broadcast());
        assert_eq!(found, extras(inst), "{inst:?}");
        assert!(!decoded.zeroing_masking(), "{inst:?}");
    }
}

#[test]
fn there_is_a_sample_of_every_avx512_form() {
    let sampled: BTreeSet<String> = samples()
        .iter()
        .map(|inst| format!("{inst:?}"))
        .map(|text| text.split(' ').next().unwrap_or_default().to_owned())
        .collect();
    let forms: BTreeSet<String> = Avx512::FORMS.iter().map(ToString::to_string).collect();
    assert_eq!(sampled, forms);
}

#[test]
fn displacements_that_are_multiples_of_the_operand_take_one_byte() {
    let load = |disp| {
        let address = Address::Base {
            base: Reg::general(2),
            disp,
        };
        let dst = Reg::vector(0);
        let (decoded, _) = emit_all(&[Avx512::Load { dst, address }.into()]);
        decoded[0].len()
    };
    assert_eq!([0, 64, -128 * 64, 127 * 64].map(load), [6, 7, 7, 7]);
    assert_eq!([1, 63, 128 * 64, -129 * 64].map(load), [10; 4]);
}

/// What a disassembler of another house makes of the same bytes.
#[test]
fn objdump_reads_what_iced_reads() {
    let insts: Vec<Inst> = samples().into_iter().map(Inst::from).collect();
    let (code, decoded) = emit_code(&insts);
    let len = decoded.iter().map(Instruction::len).sum();
    let Some(theirs) = objdump(&code.bytes()[..len]) else {
        return;
    };
    let mut formatter = IntelFormatter::new();
    let options = formatter.options_mut();
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    options.set_uppercase_hex(false);
    options.set_small_hex_numbers_in_decimal(false);
    options.set_rip_relative_addresses(true);
    options.set_always_show_scale(true);
    let ours: Vec<String> = decoded
        .iter()
        .map(|inst| {
            let mut text = String::new();
            formatter.format(inst, &mut text);
            normalised(&text)
        })
        .collect();
    assert_eq!(theirs.len(), ours.len());
    for ((theirs, ours), inst) in theirs.iter().zip(&ours).zip(&insts) {
        assert_eq!(theirs, ours, "{inst:?}");
    }
}

/// The instructions as objdump sees them. Where it is missing that is said, and a fault where `CI` is set.
fn objdump(bytes: &[u8]) -> Option<Vec<String>> {
    let file = std::env::temp_dir().join(format!("pktjit-evex-{}.bin", std::process::id()));
    std::fs::write(&file, bytes).expect("a file for objdump");
    let output = Command::new("objdump")
        .args(["-D", "-b", "binary", "-m", "i386:x86-64", "-M", "intel"])
        .args(["-w", "--no-show-raw-insn"])
        .arg(&file)
        .output();
    let _ = std::fs::remove_file(&file);
    let output = match output {
        Ok(output) if output.status.success() => output,
        other => {
            assert!(std::env::var_os("CI").is_none(), "objdump: {other:?}");
            eprintln!("skipped: no objdump that knows x86-64: {other:?}");
            return None;
        }
    };
    let text = String::from_utf8_lossy(&output.stdout);
    // `  1f:	vpandd zmm0,zmm1,zmm2        # 0x...`
    let lines = text.lines().filter_map(|line| line.split_once(":\t"));
    Some(lines.map(|(_, inst)| normalised(inst)).collect())
}

/// Without what the two write differently: spaces, sizes of operands, that a shorter form exists, comments, and how often a
/// number in memory is repeated.
fn normalised(text: &str) -> String {
    let text = text.split('#').next().unwrap_or_default().to_lowercase();
    let is_repeated = text.contains("bcst") || text.contains("{1to");
    let mut text = text.replace(" ptr ", " ").replace(" bcst ", " ");
    for size in [
        "{evex}", "{1to8}", "{1to16}", "zmmword ", "ymmword ", "xmmword ", "dword ", "word ",
        "byte ",
    ] {
        text = text.replace(size, "");
    }
    text.retain(|c| !c.is_whitespace());
    text = text.replace("+0x0]", "]");
    if is_repeated {
        text += " repeated";
    }
    text
}
