//! Audit of AArch64 code.
//!
//! ```text
//! bytes -> function (decode, blocks, loops; rules of single instructions) -> analysis (what registers hold) -> faults
//! ```
//!
//! Instructions are decoded by yaxpeax-arm; dynasmrt made them. What generated code has no use for is a fault, so that only
//! what is listed in `rules` has to be understood.

mod function;
mod rules;
mod state;
mod transfer;

use super::analysis;
use super::fault::{FaultKind, Faults};
use super::layout::Layout;
use super::number::Number;
use super::value::{Base, CURRENT_KEY, Value};
use super::{AuditReport, Profile};
use crate::code::Placement;
use state::State;

/// Audits the three entries, each up to where the next one starts.
pub(super) fn audit(
    layout: Layout<'_>,
    profile: Profile,
    report: &mut AuditReport,
    faults: &mut Faults,
) {
    relocations(layout, faults);
    report.features.insert("neon");
    let code = layout.code;
    let frame = match profile {
        Profile::Leaf => 0,
        Profile::Framed { scratch } => u64::from(scratch.next_multiple_of(16)),
        Profile::Chain => {
            let detail = "calls between entries are not understood".into();
            faults.push(FaultKind::Call, None, 0, detail);
            return;
        }
    };
    let entries = code.entries;
    let [lookup, batch, batch_ptrs] = arguments(frame);
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
    for i in 0..functions.len() {
        let (name, start, ref arguments) = functions[i];
        let end = functions.get(i + 1).map_or(code.pool_offset, |next| next.1);
        let range = start..end.min(code.pool_offset);
        if let Some(function) = function::decode(layout, name, range, report, faults) {
            analysis::run(layout, &function, arguments.clone(), report, faults);
        }
    }
}

/// Addresses of tables are in the pool, but in no table.
fn relocations(layout: Layout<'_>, faults: &mut Faults) {
    let code = layout.code;
    let tables = code.tables.iter().zip(&layout.program.tables);
    let in_pool: Vec<_> = tables
        .filter_map(|(placement, table)| match *placement {
            Placement::Pool(start) => Some(start..start + table.data.len()),
            Placement::Region(_) => None,
        })
        .collect();
    for relocation in &code.relocations {
        let bytes = relocation.offset..relocation.offset.saturating_add(8);
        let is_in_pool = bytes.start >= code.pool_offset && bytes.end <= code.bytes.len();
        let overlaps =
            |other: &std::ops::Range<usize>| bytes.start < other.end && other.start < bytes.end;
        if !is_in_pool || in_pool.iter().any(overlaps) || !bytes.start.is_multiple_of(8) {
            let detail = "an address is not in the pool, between the tables".into();
            faults.push(FaultKind::Placement, None, bytes.start, detail);
        }
    }
}

/// What is known where the entries start: `lookup(key)`, `lookup_batch(keys, stride, n, out)`,
/// `lookup_batch_ptrs(ptrs, n, out)`.
fn arguments(frame: u64) -> [State; 3] {
    let pointer = |base: Base| Value::Pointer(base.pointer());
    let key = pointer(CURRENT_KEY);
    let n = Value::Remaining { taken: 0 };
    let stride = Value::Strides(Number::constant(1));
    let results = pointer(Base::Results);
    [
        State::entry(&[key], 1, frame),
        State::entry(&[key, stride, n, results], 0, frame),
        State::entry(&[pointer(Base::KeyArray), n, results], 0, frame),
    ]
}
