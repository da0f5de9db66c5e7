//! No form is longer than the shortest that iced-x86 makes of the same mnemonic and operands, with any opcode of the same
//! encoding: EVEX, whose displacements of one byte reach further, is no substitute for VEX without AVX-512.

use std::collections::HashMap;

use iced_x86::{Code, Encoder};

use super::*;

/// All opcodes of each mnemonic.
fn codes() -> HashMap<Mnemonic, Vec<Code>> {
    let mut codes: HashMap<Mnemonic, Vec<Code>> = HashMap::new();
    for code in Code::values() {
        codes.entry(code.mnemonic()).or_default().push(code);
    }
    codes
}

/// `inst` with another opcode, and with immediates of the kinds that one wants, if it decodes to the same.
fn with_code(inst: &Instruction, code: Code, pool: u64) -> Option<usize> {
    let kinds = [
        OpKind::Immediate8,
        OpKind::Immediate8to32,
        OpKind::Immediate8to64,
        OpKind::Immediate32,
        OpKind::Immediate32to64,
        OpKind::Immediate64,
    ];
    let immediate = (0..inst.op_count()).find(|&i| kinds.contains(&inst.op_kind(i)));
    let mut variants = vec![*inst];
    if let Some(operand) = immediate {
        let value = inst.immediate(operand);
        variants = kinds
            .map(|kind| {
                let mut variant = *inst;
                variant.set_op_kind(operand, kind);
                variant.set_immediate_u64(operand, value);
                variant
            })
            .to_vec();
    }
    let encoded = variants.into_iter().filter_map(|mut variant| {
        variant.set_code(code);
        variant.set_memory_displ_size(u32::from(inst.memory_displacement64() != 0));
        let mut encoder = Encoder::new(64);
        let len = encoder.encode(&variant, inst.ip()).ok()?;
        let bytes = encoder.take_buffer();
        let decoded = Decoder::with_ip(64, &bytes, inst.ip(), DecoderOptions::NONE).decode();
        let is_same = decoded.mnemonic() == inst.mnemonic()
            && decoded.op_mask() == inst.op_mask()
            && decoded_operands(&decoded, pool) == decoded_operands(inst, pool);
        is_same.then_some(len)
    });
    encoded.min()
}

#[test]
fn no_form_is_longer_than_need_be() {
    let codes = codes();
    // Places that are filled in later have all of their bytes.
    let is_fixed = |inst: &Inst| {
        matches!(
            inst,
            Inst::Jump { .. } | Inst::JumpIf { .. } | Inst::TableAddress { .. }
        )
    };
    let samples: Vec<Inst> = samples().into_iter().filter(|i| !is_fixed(i)).collect();
    let (decoded, pool) = emit_all(&samples);
    for (sample, decoded) in samples.iter().zip(&decoded) {
        let shortest = codes[&decoded.mnemonic()]
            .iter()
            .filter(|code| code.encoding() == decoded.encoding())
            .filter_map(|&code| with_code(decoded, code, pool))
            .min();
        // At least the code that it has.
        let shortest = shortest.unwrap_or_else(|| panic!("{sample:?} was not encoded again"));
        assert_eq!(decoded.len(), shortest, "{sample:?}: {decoded}");
    }
}
