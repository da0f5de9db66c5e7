//! Audit of x86-64 code.
//!
//! ```text
//! bytes -> function (decode, blocks, loops; rules of single instructions) -> analysis (what registers hold) -> faults
//! ```

mod function;
mod registers;
mod rules;
mod stack;
mod state;
mod transfer;

use std::ops::Range;

use iced_x86::Register;

use super::analysis;
use super::fault::{FaultKind, Faults};
use super::layout::Layout;
use super::number::Number;
use super::value::{Base, CURRENT_KEY, Value};
use super::{AuditReport, Profile};
use stack::Frame;
use state::State;

/// `int3`: what fills gaps between entries stops whoever runs into it.
const INT3: u8 = 0xcc;

/// Audits the three entries, each up to where the next one starts.
pub(super) fn audit(
    layout: Layout<'_>,
    profile: Profile,
    report: &mut AuditReport,
    faults: &mut Faults,
) {
    let code = layout.code;
    let entries = code.entries;
    let [lookup, batch, batch_ptrs] = arguments();
    let mut functions = [
        ("lookup", entries.lookup, lookup),
        ("lookup_batch", entries.lookup_batch, batch),
        ("lookup_batch_ptrs", entries.lookup_batch_ptrs, batch_ptrs),
    ];
    functions.sort_by_key(|&(_, start, _)| start);
    if functions[0].1 != 0 {
        let detail = "the first entry is not at the start of the code".into();
        faults.push(FaultKind::Unreachable, None, 0, detail);
    }
    let mut relocated = 0;
    for i in 0..functions.len() {
        let (name, start, ref arguments) = functions[i];
        let end = functions.get(i + 1).map_or(code.pool_offset, |next| next.1);
        let end = instructions_end(layout, name, start..end, faults);
        let range = start..end.min(code.pool_offset);
        if let Some(function) = function::decode(layout, name, range, profile, report, faults) {
            relocated += function
                .ops
                .iter()
                .filter(|op| op.relocated.is_some())
                .count();
            let arguments = arguments.clone();
            let arguments = match profile {
                Profile::Leaf => arguments,
                Profile::Framed { scratch } => arguments.with_frame(Frame::new(scratch)),
                Profile::Chain => arguments.with_frame(Frame::new(0)),
            };
            analysis::run(layout, &function, arguments, report, faults);
        }
    }
    // Where a function was not understood its relocations were not counted, and there is a fault already.
    if faults.len() == 0 && relocated != code.relocations.len() {
        let detail = format!(
            "{} relocations, but {relocated} instructions to take them",
            code.relocations.len()
        );
        faults.push(FaultKind::Placement, None, 0, detail);
    }
}

/// Where the instructions of an entry end: where its constants start, or where `range` ends. Only padding follows constants.
fn instructions_end(
    layout: Layout<'_>,
    name: &'static str,
    range: Range<usize>,
    faults: &mut Faults,
) -> usize {
    let mut constants = layout.code.constants.iter();
    let Some(constants) = constants.find(|constants| range.contains(&constants.start)) else {
        return range.end;
    };
    let padding = layout.code.bytes.get(constants.end..range.end);
    if !padding.is_some_and(|bytes| bytes.iter().all(|&byte| byte == INT3)) {
        let detail = "not padding, behind the constants of an entry".into();
        faults.push(FaultKind::Unreachable, Some(name), constants.end, detail);
    }
    constants.start
}

/// What is known where the entries start: `lookup(key)`, `lookup_batch(keys, stride, n, out)`,
/// `lookup_batch_ptrs(ptrs, n, out)`.
fn arguments() -> [State; 3] {
    let pointer = |base: Base| Value::Pointer(base.pointer());
    let key = pointer(CURRENT_KEY);
    let n = Value::Remaining { taken: 0 };
    [
        State::entry(&[(Register::RDI, key)], 1),
        State::entry(
            &[
                (Register::RDI, key),
                (Register::RSI, Value::Strides(Number::constant(1))),
                (Register::RDX, n),
                (Register::RCX, pointer(Base::Results)),
            ],
            0,
        ),
        State::entry(
            &[
                (Register::RDI, pointer(Base::KeyArray)),
                (Register::RSI, n),
                (Register::RDX, pointer(Base::Results)),
            ],
            0,
        ),
    ]
}
