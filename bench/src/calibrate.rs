//! `calibrate`: the constants of the planner's cost model, measured; and how far its estimates are off.
//!
//! Programs made by hand do a known number of one thing: scalar instructions, comparisons of lanes, lines of a table, loads
//! that wait for each other. They are compiled like any other and take turns; what one more of the thing costs is the
//! difference between two of them, over the difference between what their code does. Tables are half of a cache, so that
//! they are in it, and the last ones larger than all of them.

use std::error::Error;
use std::fmt;

use pktjit::{
    Caches, Classifier, Cpu, EngineKind, Field, KeyLayout, LayoutError, MISS, Match, NativeCode,
    OsMemory, Rule, RuleSet, Structure, Target, cli::measure::single, cli::random::Random,
};
use pktjit_ir::plan::{Calibration, Choice, Level, Machine, Options, Pext, plan};
use pktjit_ir::program::{BinaryOp, Column, Inst, MaskOp, Table};
use pktjit_ir::{ByteOrder, ProgramBuilder, TableId, ValueId, verify};
use pktjit_jit::{LookupStats, compile, lookup_stats};
use serde::Serialize;

use crate::measure::{Effort, Loop, in_turns};
use crate::peer::{Peer, RawCall};
use crate::report;
use crate::workload::{KEYS, ROWS, Set, Traffic};

/// Bytes of a key: one number.
const KEY: usize = 8;
/// Bytes of a row of a table: one line.
const LINE: usize = 64;
/// Largest table, where the caches are not known to be smaller.
const MAX_TABLE: usize = 256 << 20;
/// The numbers of loads that wait for each other in programs: the difference is what is told.
const FEW_AND_MANY: [usize; 2] = [2, 6];
/// Of all else programs do more, so that the call hides none of it.
const MORE: usize = 6;

/// What loads from the nearest cache take at least: they are not told from noise.
const LEAST_NS: f64 = 0.02;

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Where.
    pub machine: String,
    /// The command that measured it.
    pub command: String,
    /// Nanoseconds of a lookup that does nothing.
    pub call: f64,
    /// Nanoseconds of one more scalar instruction.
    pub scalar: f64,
    /// Nanoseconds of one more instruction that compares lanes.
    pub lanes: f64,
    /// How many times as long sixteen lanes take to be compared as eight; `None` where there is no AVX-512.
    pub wide: Option<f64>,
    /// Tables in each cache, and in memory.
    pub levels: Vec<Measured>,
    /// Estimates beside what was measured.
    pub estimates: Vec<Compared>,
}

/// Loads from a table.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Measured {
    /// Its bytes.
    pub bytes: usize,
    /// Nanoseconds of a load from another line.
    pub line: f64,
    /// What it adds that the load has to wait for another one.
    pub load: f64,
}

/// The estimate for a set in one structure, and what it takes.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// The row of `selftest`.
    pub row: String,
    /// Its nominal number of rules.
    pub rules: u32,
    /// The structure.
    pub structure: &'static str,
    /// What the planner says.
    pub estimated_ns: f64,
    /// Random hits, single lookups.
    pub measured_ns: f64,
}

/// Measures everything.
///
/// # Errors
/// Where this machine cannot run generated code, or has no memory for a table.
pub fn run(effort: Effort) -> Result<Report, Box<dyn Error>> {
    let target = Cpu::host().target()?;
    let layout = key_layout()?;
    let mut random = Random(1);
    let keys: Vec<u8> = (0..KEYS)
        .flat_map(|_| (random.bits() as u64).to_le_bytes())
        .collect();
    let [few, many] = FEW_AND_MANY.map(|count| MORE * count);
    let programs = [
        scalars(&layout, few),
        scalars(&layout, many),
        comparisons(&layout, few, 8),
        comparisons(&layout, many, 8),
    ];
    let mut programs = make_all(programs, &target)?;
    if let Ok(target) = Cpu::host().avx512_target() {
        let wide = [few, many].map(|count| comparisons(&layout, count, 16));
        programs.extend(make_all(wide, &target)?);
    }
    let ns = measure(&programs, &keys, effort);
    let per_instruction = |few: usize| {
        let instructions = |i: usize| programs[i].stats.instructions as f64;
        (ns[few + 1] - ns[few]) / (instructions(few + 1) - instructions(few))
    };
    let (scalar, lanes) = (per_instruction(0), per_instruction(2));
    let wide = ns
        .get(4..6)
        .map(|ns_wide| (ns_wide[1] - ns_wide[0]) / (ns[3] - ns[2]));
    let mut levels = Vec::new();
    for bytes in table_sizes(&target) {
        let table = permutation(bytes / LINE, &mut random);
        let [few, many] = FEW_AND_MANY;
        let programs = [
            lines(&layout, &table, MORE * few),
            lines(&layout, &table, MORE * many),
            lines(&layout, &table, few),
            lines(&layout, &table, many),
            chain(&layout, &table, few),
            chain(&layout, &table, many),
        ];
        let programs = make_all(programs, &target)?;
        let ns = measure(&programs, &keys, effort);
        // What the instructions beside the load take is not the load's.
        let per_load = |few: usize, more: usize| {
            let instructions =
                programs[few + 1].stats.instructions - programs[few].stats.instructions;
            let loads = (more * (FEW_AND_MANY[1] - FEW_AND_MANY[0])) as f64;
            ((ns[few + 1] - ns[few] - scalar * instructions as f64) / loads).max(0.0)
        };
        levels.push(Measured {
            bytes,
            line: per_load(0, MORE),
            load: (per_load(4, 1) - per_load(2, 1)).max(0.0),
        });
    }
    Ok(Report {
        machine: report::machine(),
        command: std::env::args().collect::<Vec<_>>().join(" "),
        call: call(effort)?,
        scalar,
        lanes,
        wide,
        levels,
        estimates: estimates(&target, effort)?,
    })
}

impl Report {
    /// The constants, rounded to what a measurement can tell.
    #[must_use]
    pub fn calibration(&self) -> Calibration {
        let round = |ns: f64| (ns * 1000.0).round() / 1000.0;
        let mut levels = [Level {
            line: 0.0,
            load: 0.0,
        }; 4];
        // A farther level is never quicker and nothing is free, whatever the noise.
        let (mut line, mut load) = (LEAST_NS, LEAST_NS);
        for (level, measured) in levels.iter_mut().zip(&self.levels) {
            line = round(measured.line).max(line);
            load = round(measured.load).max(load);
            *level = Level { line, load };
        }
        Calibration {
            call: round(self.call),
            // Structures are about half of either.
            instruction: round((self.scalar * self.lanes).sqrt()),
            // Nothing is known of lanes that there are not.
            wide: round(self.wide.unwrap_or(1.0)),
            levels,
        }
    }
}

/// The measurements, the table as `ir/src/plan/calibration.rs` has it, and how far estimates are off.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "scalar instruction {:.3} ns, instruction on lanes {:.3} ns",
            self.scalar, self.lanes
        )?;
        match self.wide {
            Some(wide) => writeln!(f, "sixteen lanes take {wide:.2} times as long as eight")?,
            None => writeln!(f, "there are no sixteen lanes here")?,
        }
        for Measured { bytes, line, load } in &self.levels {
            writeln!(
                f,
                "table of {bytes} bytes: a line {line:.2} ns, waiting for it {load:.2} ns more"
            )?;
        }
        let Calibration {
            call,
            instruction,
            wide,
            levels,
        } = self.calibration();
        writeln!(f, "\n// {}\n// {}", self.machine, self.command)?;
        writeln!(
            f,
            "Calibration {{\n    call: {call:?},\n    instruction: {instruction:?},\n    wide: {wide:?},\n    levels: ["
        )?;
        for Level { line, load } in levels {
            writeln!(f, "        Level {{ line: {line:?}, load: {load:?} }},")?;
        }
        writeln!(f, "    ],\n}}\n")?;
        writeln!(
            f,
            "| row | structure | estimate, ns | measured, ns | factor |\n| --- | --- | --- | --- | --- |"
        )?;
        for Compared {
            row,
            rules,
            structure,
            estimated_ns,
            measured_ns,
        } in &self.estimates
        {
            let factor = estimated_ns / measured_ns;
            writeln!(
                f,
                "| {row} {rules} | {structure} | {estimated_ns:.1} | {measured_ns:.1} | {factor:.2} |"
            )?;
        }
        Ok(())
    }
}

/// A program that can be called.
struct Made {
    code: NativeCode,
    stats: LookupStats,
    layout: KeyLayout,
}

impl Made {
    fn new(b: ProgramBuilder, target: &Target) -> Result<Self, Box<dyn Error>> {
        let program = verify(b.finish())?;
        let compiled = compile(&program, target)?;
        Ok(Self {
            stats: lookup_stats(&compiled, &program).ok_or("nothing is counted of this code")?,
            layout: program.program().layout.clone(),
            code: NativeCode::load(&compiled, &OsMemory::default())?,
        })
    }
}

/// Nanoseconds of each, in turns.
fn measure(programs: &[Made], keys: &[u8], effort: Effort) -> Vec<f64> {
    let ways = programs.iter().map(|made| {
        let Made { code, layout, .. } = made;
        single(keys, KEY, |key| {
            layout.key(key).map_or(MISS, |key| code.lookup(key))
        })
    });
    let mut ways: Vec<Loop<'_>> = ways.collect();
    let estimates = in_turns(&mut ways, effort);
    estimates.iter().map(|estimate| estimate.ns).collect()
}

fn make_all<const N: usize>(
    programs: [ProgramBuilder; N],
    target: &Target,
) -> Result<Vec<Made>, Box<dyn Error>> {
    programs.into_iter().map(|b| Made::new(b, target)).collect()
}

/// Keys of one number.
fn key_layout() -> Result<KeyLayout, LayoutError> {
    KeyLayout::packed([Field::integer("n", KEY as u8)?])
}

/// A program over such keys, the number of which it has loaded.
fn program(layout: &KeyLayout, verdicts: u32) -> (ProgramBuilder, ValueId) {
    let mut b = ProgramBuilder::new(layout.clone(), verdicts);
    let key = b.load_key(0, 8, ByteOrder::Little);
    (b, key)
}

/// So many scalar instructions, in four chains.
fn scalars(layout: &KeyLayout, count: usize) -> ProgramBuilder {
    let (mut b, key) = program(layout, 0x100);
    let mut chains: [ValueId; 4] = std::array::from_fn(|i| b.shr(key, 1 + i as u8));
    for i in 0..count {
        let other = chains[(i + 1) % 4];
        chains[i % 4] = b.binary(BinaryOp::Xor, chains[i % 4], other);
    }
    let all = chains[1..]
        .iter()
        .fold(chains[0], |all, &chain| b.binary(BinaryOp::Xor, all, chain));
    let result = b.binary_const(BinaryOp::And, all, 0xff);
    b.ret(result);
    b
}

/// So many comparisons of `lanes` intervals.
fn comparisons(layout: &KeyLayout, count: usize, lanes: u8) -> ProgramBuilder {
    let (mut b, key) = program(layout, 0x1_0000);
    let columns = ["lo", "len"].iter().enumerate();
    let vectors = lanes as u32 * count as u32;
    let columns: Vec<Column> = columns
        .map(|(i, name)| column(name, i as u32 * 4 * vectors, vectors, u32::MAX.into()))
        .collect();
    let row_bytes = 8 * vectors;
    let table = b.table(Table {
        name: "rules".into(),
        row_bytes,
        columns,
        data: (0..row_bytes).map(|i| (i % 251) as u8).collect(),
    });
    let zero = b.constant(0);
    let row = b.row(table, zero);
    let word = b.shr(key, 32);
    let x = b.splat(word, lanes);
    let mut all: Option<ValueId> = None;
    for vector in 0..count as u16 {
        let first = vector * u16::from(lanes);
        let [lo, len] = [0, 1].map(|column| b.load_lanes(row, column, first, lanes));
        let mask = b.inst(Inst::InRangeLanes { x, lo, len });
        all = Some(all.map_or(mask, |all| b.combine_masks(MaskOp::Or, all, mask)));
    }
    let result = match all {
        Some(all) => b.lane_bits(all),
        None => zero,
    };
    b.ret(result);
    b
}

/// Loads from so many lines that wait for nothing but the key.
fn lines(layout: &KeyLayout, table: &Table, count: usize) -> ProgramBuilder {
    let rows = table.data.len() / LINE;
    let (mut b, key) = program(layout, rows as u32);
    let id = b.table(table.clone());
    let mut all: Option<ValueId> = None;
    for i in 0..count {
        // Another line for each, and random bits for all: 22 for the largest table.
        let bits = b.shr(key, i as u8);
        let next = load_next(&mut b, id, bits, rows);
        all = Some(all.map_or(next, |all| b.binary(BinaryOp::Xor, all, next)));
    }
    b.ret(all.unwrap_or(key));
    b
}

/// Loads from so many lines, each of which waits for the one before.
fn chain(layout: &KeyLayout, table: &Table, count: usize) -> ProgramBuilder {
    let rows = table.data.len() / LINE;
    let (mut b, key) = program(layout, rows as u32);
    let id = b.table(table.clone());
    let last = (0..count).fold(key, |at, _| load_next(&mut b, id, at, rows));
    b.ret(last);
    b
}

/// Loads the number in the row that the low bits of `x` select; the number of rows is a power of two.
fn load_next(b: &mut ProgramBuilder, table: TableId, x: ValueId, rows: usize) -> ValueId {
    let index = b.binary_const(BinaryOp::And, x, rows as u64 - 1);
    let row = b.row(table, index);
    b.load(row, 0, None)
}

/// Half of each cache, and more than all of them.
fn table_sizes(target: &Target) -> [usize; 4] {
    let Caches { l1d, l2, l3, .. } = target.caches;
    [l1d / 2, l2 / 2, l3 / 2, 4 * l3].map(|bytes| 1 << bytes.clamp(4 * LINE, MAX_TABLE).ilog2())
}

/// What a lookup takes that has nothing to do.
fn call(effort: Effort) -> Result<f64, Box<dyn Error>> {
    let rules = RuleSet::builder(key_layout()?)
        .rule(Rule::new([Match::Any]))
        .build()?;
    let classifier = Classifier::compile(&rules)?;
    let mut peer = RawCall::new(&classifier).ok_or("no machine code")?;
    let keys = vec![0; KEY * KEYS];
    let mut ways = [single(&keys, KEY, move |key| peer.lookup(key))];
    Ok(in_turns(&mut ways, effort)[0].ns)
}

/// The rows of `selftest` in each structure that can hold them.
fn estimates(target: &Target, effort: Effort) -> Result<Vec<Compared>, Box<dyn Error>> {
    let Caches { l1d, l2, l3, .. } = target.caches;
    let machine = Machine {
        pext: if target.features.fast_pext {
            Pext::Fast
        } else {
            Pext::Slow
        },
        l1d,
        l2,
        l3,
        ..Machine::default()
    };
    let mut all = Vec::new();
    for row in ROWS {
        let set = Set::new(&row)?;
        let keys = set.send(Traffic::Hits, KEYS).ranges;
        let mut estimated = Vec::new();
        let mut classifiers = Vec::new();
        for structure in Structure::ALL {
            let options = Options {
                structure: Choice::Only(structure),
                machine,
                ..Options::default()
            };
            let Ok(plan) = plan(&set.rules, &options) else {
                continue;
            };
            // Vectors of eight lanes, as the estimate has them.
            let classifier = Classifier::builder()
                .structure(structure)
                .engine(EngineKind::Avx2)
                .compile(&set.rules)?;
            let of_it = plan.decision().candidates()[0].estimate.clone()?;
            estimated.push((structure, of_it.nanoseconds));
            classifiers.push(classifier);
        }
        let calls: Option<Vec<RawCall<'_>>> = classifiers.iter().map(RawCall::new).collect();
        let mut ways: Vec<Loop<'_>> = calls
            .ok_or("no machine code")?
            .into_iter()
            .map(|mut peer| single(&keys.bytes, keys.stride, move |key| peer.lookup(key)))
            .collect();
        let measured = in_turns(&mut ways, effort);
        for ((structure, estimated_ns), measured) in estimated.into_iter().zip(measured) {
            all.push(Compared {
                row: row.name.into(),
                rules: row.rules,
                structure: structure.name(),
                estimated_ns,
                measured_ns: measured.ns,
            });
        }
    }
    Ok(all)
}

/// A table that the code walks: each row, one line, has the number of the next one, all in one cycle (Sattolo, 1986).
fn permutation(rows: usize, random: &mut Random) -> Table {
    let mut next: Vec<u32> = (0..rows as u32).collect();
    for i in (1..rows).rev() {
        next.swap(i, random.below(i as u64) as usize);
    }
    let mut data = vec![0; rows * LINE];
    for (row, next) in data.chunks_exact_mut(LINE).zip(next) {
        row[..4].copy_from_slice(&next.to_le_bytes());
    }
    Table {
        name: "rows".into(),
        row_bytes: LINE as u32,
        columns: vec![column("next", 0, 1, rows as u64 - 1)],
        data: data.into(),
    }
}

fn column(name: &str, offset: u32, count: u32, max: u64) -> Column {
    Column {
        name: name.into(),
        offset,
        bytes: 4,
        count,
        max,
        is_result: false,
    }
}
