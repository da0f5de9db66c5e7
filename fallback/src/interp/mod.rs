//! The interpreter of the IR: answers where no code can be generated or run.
//!
//! A program is decoded once into one list of operations. Decoding resolves what a lookup need not look up again: values
//! become slots of a frame, columns become byte offsets, jumps become positions in the list, and arguments become copies
//! before the jump. A row is the byte offset of its first byte in its table; a mask is a scalar with bit i for lane i.
//!
//! The verifier has proved that every access is in range and every loop ends. The interpreter relies on that only for its
//! answers: if it were not so, it would read zeros and not panic.

use std::sync::Arc;

use pktjit_ir::program::{BinaryOp, CompareOp, LaneCompareOp, MaskOp};
use pktjit_ir::{ByteOrder, KeyRef, MISS, TableId, VerifiedProgram};

mod decode;

/// Lanes beyond those that a value has are unspecified, and masks have no bits for them.
type Lanes = [u32; 16];
/// Position of a value in the frame, among the scalars or among the lanes.
type Slot = u32;
/// Position in the list of operations.
type Pc = u32;

/// Frames up to this size live on the stack: most programs fit, and no lookup of theirs allocates.
const STACK_SCALARS: usize = 64;
/// See [`STACK_SCALARS`].
const STACK_LANES: usize = 24;
/// See [`STACK_SCALARS`].
const STACK_SCRATCH: usize = 64;

/// A lookup that is interpreted.
#[derive(Clone, Debug)]
pub struct Interpreter {
    code: Vec<Op>,
    tables: Vec<Arc<[u8]>>,
    scalars: usize,
    lanes: usize,
    scratch: usize,
}

/// One step of a lookup.
#[derive(Clone, Copy, Debug)]
enum Op {
    Const {
        to: Slot,
        value: u64,
    },
    LoadKey {
        to: Slot,
        offset: u16,
        bytes: u8,
        order: ByteOrder,
    },
    Binary {
        op: BinaryOp,
        to: Slot,
        a: Slot,
        b: Slot,
    },
    Shl {
        to: Slot,
        a: Slot,
        by: u8,
    },
    Shr {
        to: Slot,
        a: Slot,
        by: u8,
    },
    Compare {
        op: CompareOp,
        to: Slot,
        a: Slot,
        b: Slot,
    },
    Select {
        to: Slot,
        cond: Slot,
        a: Slot,
        b: Slot,
    },
    FirstBit {
        to: Slot,
        a: Slot,
    },
    Row {
        to: Slot,
        row_bytes: u32,
        index: Slot,
    },
    Load {
        to: Slot,
        table: TableId,
        row: Slot,
        offset: u32,
        bytes: u8,
    },
    LoadAt {
        to: Slot,
        table: TableId,
        row: Slot,
        offset: u32,
        bytes: u8,
        index: Slot,
    },
    LoadLanes {
        to: Slot,
        table: TableId,
        row: Slot,
        offset: u32,
        bytes: u8,
        lanes: u8,
    },
    LoadScratch {
        to: Slot,
        index: Slot,
    },
    LoadScratchLanes {
        to: Slot,
        index: Slot,
        lanes: u8,
    },
    OrScratch {
        index: Slot,
        bits: Slot,
    },
    AndLanes {
        to: Slot,
        a: Slot,
        b: Slot,
    },
    Splat {
        to: Slot,
        a: Slot,
    },
    CompareLanes {
        op: LaneCompareOp,
        to: Slot,
        a: Slot,
        b: Slot,
        lanes: u8,
    },
    InRangeLanes {
        to: Slot,
        x: Slot,
        lo: Slot,
        len: Slot,
        lanes: u8,
    },
    InRangeHalves {
        to: Slot,
        x: Slot,
        lo: Slot,
        len: Slot,
        lanes: u8,
    },
    MaskedEqLanes {
        to: Slot,
        x: Slot,
        mask: Slot,
        value: Slot,
        lanes: u8,
    },
    CombineMasks {
        op: MaskOp,
        to: Slot,
        a: Slot,
        b: Slot,
    },
    MaskedMin {
        to: Slot,
        acc: Slot,
        mask: Slot,
        x: Slot,
    },
    HorizontalMin {
        to: Slot,
        a: Slot,
        lanes: u8,
    },
    CopyScalar {
        to: Slot,
        from: Slot,
    },
    CopyLanes {
        to: Slot,
        from: Slot,
    },
    Jump {
        to: Pc,
    },
    JumpIfZero {
        cond: Slot,
        to: Pc,
    },
    /// Leaves a loop after its last trip.
    JumpIfLast {
        counter: Slot,
        trips: u32,
        to: Pc,
    },
    Increment {
        counter: Slot,
    },
    Return {
        value: Slot,
    },
}

impl Interpreter {
    /// Decodes a program.
    #[must_use]
    pub fn new(program: VerifiedProgram) -> Self {
        decode::decode(&program)
    }

    /// The row of the rule that wins for `key`, or [`MISS`]. Never panics.
    #[must_use]
    pub fn lookup(&self, key: KeyRef<'_>) -> u32 {
        let fits = self.scalars <= STACK_SCALARS
            && self.lanes <= STACK_LANES
            && self.scratch <= STACK_SCRATCH;
        if fits {
            self.run(
                key.bytes(),
                Frame {
                    scalars: &mut [0; STACK_SCALARS],
                    lanes: &mut [[0; 16]; STACK_LANES],
                    scratch: &mut [0; STACK_SCRATCH],
                },
            )
        } else {
            self.run(
                key.bytes(),
                Frame {
                    scalars: &mut vec![0; self.scalars],
                    lanes: &mut vec![[0; 16]; self.lanes],
                    scratch: &mut vec![0; self.scratch],
                },
            )
        }
    }

    fn run(&self, key: &[u8], mut frame: Frame<'_>) -> u32 {
        let mut pc = 0;
        while let Some(&op) = self.code.get(pc) {
            pc += 1;
            match op {
                Op::Const { to, value } => frame.set(to, value),
                Op::LoadKey {
                    to,
                    offset,
                    bytes,
                    order,
                } => {
                    let bytes = bytes_at(key, offset.into(), bytes);
                    frame.set(
                        to,
                        match order {
                            ByteOrder::Big => big_endian(bytes),
                            ByteOrder::Little => little_endian(bytes),
                        },
                    );
                }
                Op::Binary { op, to, a, b } => {
                    frame.set(to, binary(op, frame.scalar(a), frame.scalar(b)))
                }
                Op::Shl { to, a, by } => frame.set(to, frame.scalar(a).wrapping_shl(by.into())),
                Op::Shr { to, a, by } => frame.set(to, frame.scalar(a).wrapping_shr(by.into())),
                Op::Compare { op, to, a, b } => {
                    let (a, b) = (frame.scalar(a), frame.scalar(b));
                    frame.set(
                        to,
                        u64::from(match op {
                            CompareOp::Eq => a == b,
                            CompareOp::Ne => a != b,
                            CompareOp::Lt => a < b,
                            CompareOp::Le => a <= b,
                        }),
                    );
                }
                Op::Select { to, cond, a, b } => {
                    let chosen = if frame.scalar(cond) != 0 { a } else { b };
                    frame.set(to, frame.scalar(chosen));
                }
                Op::FirstBit { to, a } => frame.set(to, frame.scalar(a).trailing_zeros().into()),
                Op::Row {
                    to,
                    row_bytes,
                    index,
                } => {
                    frame.set(to, frame.scalar(index).wrapping_mul(row_bytes.into()));
                }
                Op::Load {
                    to,
                    table,
                    row,
                    offset,
                    bytes,
                } => {
                    let start = frame.address(row, offset);
                    frame.set(to, little_endian(bytes_at(self.table(table), start, bytes)));
                }
                Op::LoadAt {
                    to,
                    table,
                    row,
                    offset,
                    bytes,
                    index,
                } => {
                    let start = frame.scalar(index).wrapping_mul(bytes.into()) as usize;
                    let start = frame.address(row, offset).wrapping_add(start);
                    frame.set(to, little_endian(bytes_at(self.table(table), start, bytes)));
                }
                Op::LoadLanes {
                    to,
                    table,
                    row,
                    offset,
                    bytes,
                    lanes,
                } => {
                    let start = frame.address(row, offset);
                    frame.set_lanes(to, lanes_at(self.table(table), start, bytes, lanes));
                }
                Op::LoadScratch { to, index } => {
                    let number = frame.scratch(frame.scalar(index), 1)[0];
                    frame.set(to, number.into());
                }
                Op::LoadScratchLanes { to, index, lanes } => {
                    frame.set_lanes(to, frame.scratch(frame.scalar(index), lanes));
                }
                Op::OrScratch { index, bits } => {
                    frame.or_scratch(frame.scalar(index), frame.scalar(bits) as u32);
                }
                Op::AndLanes { to, a, b } => {
                    let (a, b) = (frame.lanes(a), frame.lanes(b));
                    frame.set_lanes(to, std::array::from_fn(|i| a[i] & b[i]));
                }
                Op::Splat { to, a } => frame.set_lanes(to, [frame.scalar(a) as u32; 16]),
                Op::CompareLanes {
                    op,
                    to,
                    a,
                    b,
                    lanes,
                } => {
                    let (a, b) = (frame.lanes(a), frame.lanes(b));
                    frame.set(
                        to,
                        match op {
                            LaneCompareOp::Eq => mask_of(lanes, |i| a[i] == b[i]),
                            LaneCompareOp::Le => mask_of(lanes, |i| a[i] <= b[i]),
                        },
                    );
                }
                Op::InRangeLanes {
                    to,
                    x,
                    lo,
                    len,
                    lanes,
                } => {
                    let (x, lo, len) = (frame.lanes(x), frame.lanes(lo), frame.lanes(len));
                    frame.set(to, mask_of(lanes, |i| x[i].wrapping_sub(lo[i]) <= len[i]));
                }
                Op::InRangeHalves {
                    to,
                    x,
                    lo,
                    len,
                    lanes,
                } => {
                    let (x, lo, len) = (frame.lanes(x), frame.lanes(lo), frame.lanes(len));
                    let is_within = |i: usize, half: u32| {
                        let [x, lo, len] = [x[i], lo[i], len[i]].map(|lane| (lane >> half) as u16);
                        x.wrapping_sub(lo) <= len
                    };
                    frame.set(to, mask_of(lanes, |i| is_within(i, 0) && is_within(i, 16)));
                }
                Op::MaskedEqLanes {
                    to,
                    x,
                    mask,
                    value,
                    lanes,
                } => {
                    let (x, mask, value) = (frame.lanes(x), frame.lanes(mask), frame.lanes(value));
                    frame.set(to, mask_of(lanes, |i| x[i] & mask[i] == value[i]));
                }
                Op::CombineMasks { op, to, a, b } => {
                    let (a, b) = (frame.scalar(a), frame.scalar(b));
                    frame.set(
                        to,
                        match op {
                            MaskOp::And => a & b,
                            MaskOp::Or => a | b,
                            MaskOp::AndNot => a & !b,
                        },
                    );
                }
                Op::MaskedMin { to, acc, mask, x } => {
                    let (mut acc, mask, x) = (frame.lanes(acc), frame.scalar(mask), frame.lanes(x));
                    for (i, (acc, x)) in acc.iter_mut().zip(x).enumerate() {
                        if (mask >> i) & 1 != 0 {
                            *acc = x.min(*acc);
                        }
                    }
                    frame.set_lanes(to, acc);
                }
                Op::HorizontalMin { to, a, lanes } => {
                    let all = frame.lanes(a);
                    let smallest = all.iter().take(lanes.into()).min();
                    frame.set(to, smallest.copied().unwrap_or(u32::MAX).into());
                }
                Op::CopyScalar { to, from } => frame.set(to, frame.scalar(from)),
                Op::CopyLanes { to, from } => frame.set_lanes(to, frame.lanes(from)),
                Op::Jump { to } => pc = to as usize,
                Op::JumpIfZero { cond, to } => {
                    if frame.scalar(cond) == 0 {
                        pc = to as usize;
                    }
                }
                Op::JumpIfLast { counter, trips, to } => {
                    if frame.scalar(counter).wrapping_add(1) >= trips.into() {
                        pc = to as usize;
                    }
                }
                Op::Increment { counter } => {
                    frame.set(counter, frame.scalar(counter).wrapping_add(1))
                }
                Op::Return { value } => return frame.scalar(value) as u32,
            }
        }
        debug_assert!(false, "a verified program returns");
        MISS
    }

    fn table(&self, id: TableId) -> &[u8] {
        self.tables.get(id.index()).map_or(&[], |table| table)
    }
}

fn binary(op: BinaryOp, a: u64, b: u64) -> u64 {
    match op {
        BinaryOp::And => a & b,
        BinaryOp::Or => a | b,
        BinaryOp::Xor => a ^ b,
        BinaryOp::Add => a.wrapping_add(b),
        BinaryOp::Sub => a.wrapping_sub(b),
        BinaryOp::Mul => a.wrapping_mul(b),
        BinaryOp::Min => a.min(b),
        BinaryOp::Max => a.max(b),
        BinaryOp::Pext => pext(a, b),
    }
}

/// The bits of `a` that are set in `mask`, gathered at the low end.
fn pext(a: u64, mut mask: u64) -> u64 {
    let (mut gathered, mut at) = (0, 0);
    while mask != 0 {
        gathered |= ((a >> mask.trailing_zeros()) & 1) << at;
        at += 1;
        mask &= mask - 1;
    }
    gathered
}

/// The lanes below `lanes` for which `holds`, as bits.
fn mask_of(lanes: u8, holds: impl Fn(usize) -> bool) -> u64 {
    let all = (0..16).fold(0, |mask, i| mask | (u64::from(holds(i)) << i));
    all & ((1 << lanes) - 1)
}

fn bytes_at(bytes: &[u8], start: usize, count: u8) -> &[u8] {
    let found = bytes.get(start..start.wrapping_add(count.into()));
    debug_assert!(
        found.is_some(),
        "a verified program loads inside its key and tables"
    );
    found.unwrap_or(&[])
}

/// Adjacent numbers of at most 4 bytes as lanes.
fn lanes_at(table: &[u8], start: usize, bytes: u8, count: u8) -> Lanes {
    let mut lanes = [0; 16];
    let numbers = bytes_at(table, start, bytes * count);
    for (lane, bytes) in lanes.iter_mut().zip(numbers.chunks_exact(bytes.into())) {
        *lane = little_endian(bytes) as u32;
    }
    lanes
}

fn big_endian(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |number, &byte| (number << 8) | u64::from(byte))
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |number, &byte| (number << 8) | u64::from(byte))
}

/// The values and the scratch of one lookup. What does not exist reads as zero and swallows writes.
struct Frame<'a> {
    scalars: &'a mut [u64],
    lanes: &'a mut [Lanes],
    scratch: &'a mut [u32],
}

impl Frame<'_> {
    fn scalar(&self, slot: Slot) -> u64 {
        debug_assert!((slot as usize) < self.scalars.len());
        self.scalars.get(slot as usize).copied().unwrap_or(0)
    }

    fn set(&mut self, slot: Slot, value: u64) {
        debug_assert!((slot as usize) < self.scalars.len());
        if let Some(scalar) = self.scalars.get_mut(slot as usize) {
            *scalar = value;
        }
    }

    fn lanes(&self, slot: Slot) -> Lanes {
        debug_assert!((slot as usize) < self.lanes.len());
        self.lanes.get(slot as usize).copied().unwrap_or([0; 16])
    }

    fn set_lanes(&mut self, slot: Slot, value: Lanes) {
        debug_assert!((slot as usize) < self.lanes.len());
        if let Some(lanes) = self.lanes.get_mut(slot as usize) {
            *lanes = value;
        }
    }

    /// The `index`-th run of `count` numbers of scratch.
    fn scratch(&self, index: u64, count: u8) -> Lanes {
        let start = index.wrapping_mul(count.into()) as usize;
        let found = self.scratch.get(start..start.wrapping_add(count.into()));
        debug_assert!(found.is_some(), "a verified program stays inside scratch");
        let mut lanes = [0; 16];
        for (lane, &number) in lanes.iter_mut().zip(found.unwrap_or(&[])) {
            *lane = number;
        }
        lanes
    }

    fn or_scratch(&mut self, index: u64, bits: u32) {
        let number = self.scratch.get_mut(index as usize);
        debug_assert!(number.is_some(), "a verified program stays inside scratch");
        if let Some(number) = number {
            *number |= bits;
        }
    }

    /// Byte `offset` of a row, in its table.
    fn address(&self, row: Slot, offset: u32) -> usize {
        (self.scalar(row) as usize).wrapping_add(offset as usize)
    }
}
