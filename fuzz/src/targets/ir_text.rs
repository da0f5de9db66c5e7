//! The text form of programs: what parses prints and parses to itself, the verifier takes anything, and what it accepts
//! runs, on the interpreter as in machine code.

use pktjit::{Cpu, EngineKind, NativeCode, OsMemory};
use pktjit_fallback::Interpreter;
use pktjit_ir::{Program, VerifiedProgram, text, verify};
use pktjit_jit::audit::{audit, has_auditor};

use crate::filetest;
use crate::oracle::code_engines;

/// Most instructions of a lookup that is run.
const MAX_STEPS: u64 = 1 << 16;

/// Reads the bytes as a program, and goes as far with it as it is valid.
///
/// # Panics
/// Where an error points outside the text, the text form loses something, or engines differ.
pub fn ir_text(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else {
        return;
    };
    let program = match text::parse(text) {
        Ok(program) => program,
        Err(error) => {
            let line = text.split('\n').nth(error.line - 1);
            let columns = line.map_or(0, |line| line.chars().count() + 1);
            assert!((1..=columns).contains(&error.column), "{error}");
            return;
        }
    };
    let printed = program.to_string();
    assert_eq!(text::parse(&printed).as_ref(), Ok(&program), "{printed}");
    if let Ok(program) = verify(program)
        && most_steps(program.program()) <= MAX_STEPS
    {
        run(program, input);
    }
}

/// More instructions than a lookup takes: all of them, as often as if each loop were inside all others.
fn most_steps(program: &Program) -> u64 {
    let trips = program.blocks.iter().filter_map(|block| block.trips);
    let insts: usize = program
        .blocks
        .iter()
        .map(|block| block.insts.len() + 1)
        .sum();
    trips.fold(insts as u64, |steps, trips| {
        steps.saturating_mul(trips.into())
    })
}

/// Looks up keys of zeros, of ones, and of the end of the text.
fn run(program: VerifiedProgram, input: &[u8]) {
    let layout = program.program().layout.clone();
    let ending = input.iter().rev().copied().chain(std::iter::repeat(0));
    let keys = [
        vec![0; layout.len()],
        vec![0xff; layout.len()],
        ending.take(layout.len()).collect(),
    ];
    let natives: Vec<NativeCode> = code_engines()
        .filter_map(|engine| native(&program, engine))
        .collect();
    let interpreter = Interpreter::new(program);
    for bytes in &keys {
        let key = layout.key(bytes).expect("as long as the layout says");
        let row = interpreter.lookup(key);
        for native in &natives {
            assert_eq!(native.lookup(key), row, "key {bytes:02x?}");
        }
    }
}

/// Machine code, unless there are too few registers for it or the auditor, which need not understand all of it, objects.
fn native(program: &VerifiedProgram, engine: EngineKind) -> Option<NativeCode> {
    let target = match engine {
        EngineKind::Cranelift => Cpu::host().cranelift_target(),
        _ => Cpu::host().target(),
    };
    let target = target.ok()?;
    let code = match pktjit_jit::compile(program, &target) {
        Err(error) if error.is_unsupported() => return None,
        code => code.expect("code"),
    };
    if has_auditor(&target) {
        audit(&code, program, code.profile()).ok()?;
    }
    Some(NativeCode::load(&code, &OsMemory::default()).expect("executable memory"))
}

/// The programs of the filetests.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    ["run", "verify"]
        .into_iter()
        .flat_map(|folder| filetest::read_folder(folder).expect("readable filetests"))
        .map(|test| test.program.into_bytes())
        .collect()
}
