//! `bucket`: some bits of the key select a bucket of at most K - 1 rules, which are compared at once.
//!
//! ```text
//! index  = pext(key, bits)
//! row    = cells[index]                     left out where nearly every cell has a bucket of its own
//! bucket | saddr lo x K | saddr len x K | dport lo x K | ... | row x K |      the strongest rule first
//! result = row number of the first lane that matches; the last lane is never filled and holds MISS
//! ```
//!
//! One index holds the rules that its bits tell apart, a [`group`](crate::structure::group). Rules that are left over get a
//! group with bits of their own, as long as that is estimated to be cheaper than comparing them with every key, which is what
//! happens to the rest. The smallest row number of all groups and the rest wins.
//!
//! Where a few words tell the rules of each bucket apart, only those are in the lanes, as a
//! [sieve](crate::structure::sieve), and the rule that is found is verified by scalars. Where tables outgrow the near caches,
//! numbers of ports and protocols take 2 bytes and 1, which costs an instruction each: the estimate decides.
//!
//! Cost of a group: one dependent load (two with `cells`, one more with a sieve), (2 d + 1) K / 16 cache lines for d words a
//! rule, and about 8 instructions a word. One group wins for rules that are disjoint or nearly so; overlap makes more of them.
//!
//! Sources: cutting the space once by bits anywhere in the key, instead of a tree of cuts, is that of modular and bit-selecting
//! classifiers (Woo, "A modular approach to packet classification", 2000; ByteCuts, 2018); keeping rules that are wide in
//! the cut apart is EffiCuts' separability (Vamanan et al., 2010). The leaf that compares all its rules at once is ours.

use std::cell::Cell;

use crate::builder::ProgramBuilder;
use crate::entity::ValueId;
use crate::plan::Machine;
use crate::program::{BinaryOp, Column, Program};
use crate::rule::Rule;
use crate::structure::bits::Index;
use crate::structure::compare::{Comparison, LaneRules, Splats, result_column};
use crate::structure::group::{Assignment, Outline, for_each_assignment};
use crate::structure::inline::{self, Inline};
use crate::structure::linear::Blocks;
use crate::structure::sieve::{self, Sieve, Sieved};
use crate::structure::{Cost, Input, Refusal, empty};
use crate::table::{TableWriter, flat};

/// Vectors of one bucket that are tried.
const BUCKET_VECTORS: [u32; 3] = [1, 2, 4];
/// Most groups.
const MAX_GROUPS: usize = 8;
/// A sieve may leave over one of so many rules.
const MIXED_SHARE: usize = 16;
/// Bytes for each byte that the tables had before which a choice that saves instructions may take. Keys and other work share
/// the caches: with 10,000 elements of an IPv4 address, a MAC and a protocol, 790 KiB took 10.5 ns where 414 KiB took 6.0,
/// though all are in a second-level cache of 1 MiB (2026-11-30, Zen 4, both threads of the core busy).
const MAX_GROWTH: f64 = 1.25;
/// Bytes of tables that no choice need save.
const SMALL_TABLES: usize = 32 << 10;

/// Bytes of a rule behind a sieve, at least: one number and the row in the lanes, and as much to verify.
const LEAST_SIEVED_BYTES: usize = 16;
/// Rules by which it is told what a sieve takes at least.
const SIEVE_SAMPLE: usize = 64;

/// What it costs that cells share buckets.
const SHARED: Cost = Cost {
    instructions: 3.0,
    dependent_loads: 1.0,
    lines: 1.0,
    table_bytes: 0,
};

/// Rules in one or more groups, and a rest.
pub(crate) struct Bucket {
    groups: Vec<Group>,
    rest: Rest,
}

/// The buckets of one index.
struct Group {
    tests: Tests,
    assignment: Assignment,
    /// Whether the index is the number of the bucket, without `cells` between.
    is_direct: bool,
}

/// How the rules of a bucket are tested.
enum Tests {
    /// The lanes compare all that rules want.
    Lanes(Comparison),
    /// The lanes find the only rule that can match.
    Sieve(Comparison, Box<Sieved>),
}

impl Tests {
    fn sieve(input: &Input<'_>, rows: &[u32], sieve: Sieve) -> Option<Self> {
        let layout = input.layout();
        let sieved = Sieved::new(input, rows, sieve)?;
        let in_lanes: Vec<Rule> = rows
            .iter()
            .map(|&row| sieved.in_lanes(layout, input.rule(row)))
            .collect();
        let lanes = Comparison::new(layout, in_lanes.iter());
        Some(Self::Sieve(lanes, Box::new(sieved)))
    }

    /// Sets `numbers` to what the lanes compare of the rule of a row.
    fn numbers(&self, input: &Input<'_>, row: u32, numbers: &mut Vec<u32>) {
        let rule = input.rule(row);
        numbers.clear();
        match self {
            Self::Lanes(comparison) => comparison.numbers(rule, numbers),
            Self::Sieve(comparison, sieved) => {
                comparison.numbers(&sieved.in_lanes(input.layout(), rule), numbers);
            }
        }
    }

    /// What the lanes compare.
    fn lanes(&self) -> &Comparison {
        match self {
            Self::Lanes(comparison) | Self::Sieve(comparison, _) => comparison,
        }
    }

    fn lanes_mut(&mut self) -> &mut Comparison {
        match self {
            Self::Lanes(comparison) | Self::Sieve(comparison, _) => comparison,
        }
    }
}

/// What is done about the rules that are in no bucket.
enum Rest {
    None,
    Inline(Inline),
    Blocks(Blocks),
}

impl Bucket {
    pub(crate) fn prepare(input: &Input<'_>) -> Result<Self, Refusal> {
        let mut left: Vec<u32> = (0..input.rows.len() as u32).collect();
        let mut groups: Vec<Group> = Vec::new();
        let mut before = Cost::default();
        while !left.is_empty() && groups.len() < MAX_GROUPS {
            let (group, cost) = match Group::cheapest(input, &left, before) {
                Ok(Some(cheapest)) => cheapest,
                // To compare a few rules with every key may still be quicker than a group.
                Err(slower) if groups.is_empty() || left.len() > inline::MAX_RULES => {
                    return Err(slower);
                }
                Ok(None) | Err(_) => break,
            };
            // The first group is what was asked for, however little it helps. A further one without an index would be a
            // piece of the rest.
            let is_worth_it =
                group.assignment.index.bits() > 0 && cost < linear_nanoseconds(input, left.len());
            if !groups.is_empty() && !is_worth_it {
                break;
            }
            left.clone_from(&group.assignment.left_over);
            before = before + group.cost(&group.tests, &input.machine);
            input.is_worth(input.machine.nanoseconds(&before))?;
            groups.push(group);
        }
        if groups.is_empty() && !input.work.is_left() {
            return Err(Refusal::OutOfWork);
        }
        let rest_rows: Vec<u32> = left.iter().map(|&rule| input.rows[rule as usize]).collect();
        let rest = match rest_rows.len() {
            0 => Rest::None,
            1..=inline::MAX_RULES => Rest::Inline(Inline::of(input, rest_rows)),
            _ => Rest::Blocks(Blocks::prepare(input, &rest_rows)?),
        };
        Ok(Self { groups, rest })
    }

    /// What a lookup costs at least: one group for all rules, whose bucket is one vector; or a group and a rest, which may
    /// both be for rules that differ in one word.
    pub(crate) fn floor(input: &Input<'_>) -> Cost {
        let comparison = input.comparison();
        let lanes = usize::from(input.machine.lanes);
        let most_vectors = BUCKET_VECTORS.into_iter().max().unwrap_or(1) as usize;
        let needs_index = input.rows.len() >= lanes * most_vectors;
        let of_bucket = Cost {
            instructions: if needs_index { 13.0 } else { 8.0 },
            dependent_loads: 1.0,
            lines: f64::from(comparison.column_count() + 1) * lanes as f64 / 16.0,
            table_bytes: 0,
        };
        let one = of_bucket + comparison.block_cost(&input.machine) + comparison.key_cost(1.0);
        let two = Cost {
            instructions: 28.0,
            dependent_loads: 2.0,
            lines: 1.0,
            table_bytes: 0,
        };
        input.machine.cheaper(one, two)
    }

    pub(crate) fn cost(&self, input: &Input<'_>) -> Cost {
        let rest = match &self.rest {
            Rest::None => Cost::default(),
            Rest::Inline(inline) => inline.cost(input),
            Rest::Blocks(blocks) => blocks.cost(input),
        };
        self.groups.iter().fold(rest, |sum, group| {
            sum + group.cost(&group.tests, &input.machine)
        })
    }

    pub(crate) fn build(&self, input: &Input<'_>) -> Program {
        let mut b = input.program();
        let mut splats = Splats::default();
        let mut found: Option<ValueId> = None;
        // Row numbers are joined at once, so that few scalars are alive.
        let mut join = |b: &mut ProgramBuilder, row: ValueId| {
            found = Some(found.map_or(row, |found| b.binary(BinaryOp::Min, found, row)));
        };
        for group in &self.groups {
            let row = group.emit(input, &mut b, &mut splats);
            join(&mut b, row);
        }
        match &self.rest {
            Rest::None => {}
            Rest::Inline(inline) => {
                let row = inline.emit(input, &mut b, &mut splats, "rest");
                join(&mut b, row);
            }
            Rest::Blocks(blocks) => {
                let row = blocks.emit(input, &mut b, &mut splats, "rest");
                join(&mut b, row);
            }
        }
        match found {
            Some(found) => input.finish(b, found),
            None => empty(input),
        }
    }
}

/// The estimated time for so many rules in groups of their own: smooth in their number, so that the search for a good first
/// group is not misled by steps. A group takes about 8 ns and leaves, for lists that are not too entangled, a quarter.
fn further_nanoseconds(input: &Input<'_>, rules: usize) -> f64 {
    let blocks = rules as f64 / f64::from(input.machine.lanes);
    if blocks <= 2.0 {
        input.machine.on_lanes(1.5) * blocks
    } else {
        (input.machine.on_lanes(3.0) + 4.0 * (blocks / 2.0).log2())
            .min(linear_nanoseconds(input, rules))
    }
}

/// The estimated time for comparing so many rules with every key: 20 instructions and five lines a block.
fn linear_nanoseconds(input: &Input<'_>, rules: usize) -> f64 {
    let blocks = (rules as f64 / f64::from(input.machine.lanes)).ceil();
    let cost = Cost {
        instructions: input.machine.on_lanes(20.0) * blocks,
        lines: 5.0 / 4.0 * blocks,
        ..Cost::default()
    };
    input.machine.nanoseconds(&cost)
}

/// Bytes of a bucket of so many lanes.
fn row_bytes(comparison: &Comparison, capacity: u32) -> usize {
    ((comparison.rule_bytes() + 4) * capacity).next_multiple_of(32) as usize
}

/// Whether the tables take little more than they would before.
fn grows_little(before: &Cost, after: &Cost) -> bool {
    let most = MAX_GROWTH * before.table_bytes as f64;
    after.table_bytes <= SMALL_TABLES || after.table_bytes as f64 <= most
}

impl Group {
    /// The group of these rules that is cheapest together with what it leaves over, and the time of both. Sieves are tried
    /// for the assignment that is the best without one. Fails where no group behind those that cost `before` is worth it.
    fn cheapest(
        input: &Input<'_>,
        rules: &[u32],
        before: Cost,
    ) -> Result<Option<(Self, f64)>, Refusal> {
        let rule = |&rule: &u32| input.rule(input.rows[rule as usize]);
        let comparison = if rules.len() == input.rows.len() {
            input.comparison().clone()
        } else {
            Comparison::new(input.layout(), rules.iter().map(rule))
        };
        let capacities = BUCKET_VECTORS.map(|vectors| vectors * u32::from(input.machine.lanes));
        let machine = &input.machine;
        let least = Cell::new(f64::INFINITY);
        let mut narrow = comparison.clone();
        narrow.is_narrow = true;
        let least_bytes = narrow.rule_bytes() as usize + 4;
        let some = rules.iter().step_by(rules.len().div_ceil(SIEVE_SAMPLE));
        let least_sieved = sieve::least_cost(input.layout(), some.map(rule));
        // The quickest of those that are no better than another structure.
        let beaten = Cell::new(f64::INFINITY);
        let mut best: Option<Self> = None;
        let at_least = |outline: &Outline<'_>| {
            let further = further_nanoseconds(input, outline.left_over);
            let kept = rules.len() - outline.left_over;
            let cost = Self::least_cost(machine, &comparison, least_bytes, kept, outline);
            let lanes = machine.nanoseconds(&cost) + further;
            if lanes > least.get() {
                return None;
            }
            // A sieve may yet make it cheaper.
            let mut sieved = outline.index.cost(machine.pext) + least_sieved;
            sieved.table_bytes = LEAST_SIEVED_BYTES * kept;
            let at_least = machine.nanoseconds(&(before + machine.cheaper(cost, sieved))) + further;
            if input.is_worth(at_least).is_err() {
                beaten.set(beaten.get().min(at_least));
                return None;
            }
            Some(lanes)
        };
        let no_index = Index::new(input.layout(), &[]);
        let whole = |&capacity: &u32| Outline {
            index: &no_index,
            capacity,
            left_over: 0,
        };
        if capacities
            .iter()
            .all(|capacity| at_least(&whole(capacity)).is_none())
        {
            let at_least = beaten.get();
            return Err(Refusal::Slower { at_least });
        }
        for_each_assignment(input, rules, &capacities, at_least, |assignment| {
            let group = Self::new(machine, Tests::Lanes(comparison.clone()), assignment);
            let cost = machine.nanoseconds(&group.cost(&group.tests, machine))
                + further_nanoseconds(input, group.assignment.left_over.len());
            // Of those that are as good the one that leaves most of the caches to others.
            let bytes = |group: &Self| group.table_bytes(&group.tests);
            let is_smaller = |best: &Self| bytes(&group) < bytes(best);
            if cost < least.get() || cost == least.get() && best.as_ref().is_some_and(is_smaller) {
                least.set(cost);
                best = Some(group);
            }
        });
        let (group, cost) = match best {
            Some(group) => (group, least.get()),
            None if beaten.get().is_finite() => {
                let at_least = beaten.get();
                return Err(Refusal::Slower { at_least });
            }
            None => return Ok(None),
        };
        // The rules that were kept may need fewer tests than all of them.
        let assignment = group.assignment;
        let kept = assignment.kept(rules);
        if kept.is_empty() {
            return Ok(None);
        }
        let comparison = Comparison::new(input.layout(), kept.iter().map(rule));
        let group = Self::new(&input.machine, Tests::Lanes(comparison), assignment);
        Ok(Some((
            group.or_sieve(input, kept, before, least_sieved),
            cost,
        )))
    }

    /// This group of the rules `kept`, or one whose lanes are a sieve if that is cheaper. Behind its index any sieve takes
    /// `least` or more, and the groups before this one take `earlier`.
    fn or_sieve(mut self, input: &Input<'_>, kept: Vec<u32>, earlier: Cost, least: Cost) -> Self {
        let rule = |number: u32| input.rule(input.rows[number as usize]);
        // A sieve compares a word at least.
        if self.tests.lanes().words() < 2 {
            return self;
        }
        // The table of what is verified has a row for each rule of the set.
        if 2 * kept.len() < input.rule_set.len() {
            return self;
        }
        let nanoseconds = |cost: &Cost, left: usize| {
            input.machine.nanoseconds(cost) + further_nanoseconds(input, left)
        };
        let before = self.cost(&self.tests, &input.machine);
        let left = self.assignment.left_over.len();
        let mut least = least + self.assignment.index.cost(input.machine.pext);
        least.table_bytes = LEAST_SIEVED_BYTES * kept.len();
        let at_least = nanoseconds(&(earlier + least), left);
        if input.is_worth(at_least).is_err() {
            return self;
        }
        let mut best = (nanoseconds(&before, left), None);
        Sieve::for_each(
            input.layout(),
            &self.assignment.buckets,
            kept.len() / MIXED_SHARE,
            rule,
            |sieve, mixed| {
                if nanoseconds(&least, left + mixed.len()) >= best.0 {
                    return;
                }
                let rows: Vec<u32> = kept
                    .iter()
                    .filter(|number| mixed.binary_search(number).is_err())
                    .map(|&number| input.rows[number as usize])
                    .collect();
                let Some(sieved) = Tests::sieve(input, &rows, sieve) else {
                    return;
                };
                let cost = self.cost(&sieved, &input.machine);
                let nanoseconds = nanoseconds(&cost, left + mixed.len());
                if nanoseconds < best.0 && grows_little(&before, &cost) {
                    best = (nanoseconds, Some((sieved, mixed)));
                }
            },
        );
        match best {
            (_, Some((tests, mixed))) => {
                self.assignment.leave_over(mixed);
                Self::new(&input.machine, tests, self.assignment)
            }
            (_, None) => self,
        }
    }

    fn new(machine: &Machine, tests: Tests, assignment: Assignment) -> Self {
        let mut group = Self {
            tests,
            assignment,
            is_direct: true,
        };
        let ways = [(false, false), (true, false), (false, true), (true, true)];
        let costs = ways.map(|(is_direct, is_narrow)| {
            group.is_direct = is_direct;
            group.tests.lanes_mut().is_narrow = is_narrow;
            group.cost(&group.tests, machine)
        });
        let [shared, ..] = &costs;
        let cheapest = ways
            .iter()
            .zip(&costs)
            .filter(|(_, cost)| grows_little(shared, cost))
            .min_by(|(_, a), (_, b)| machine.nanoseconds(a).total_cmp(&machine.nanoseconds(b)));
        if let Some((&(is_direct, is_narrow), _)) = cheapest {
            group.is_direct = is_direct;
            group.tests.lanes_mut().is_narrow = is_narrow;
        }
        group
    }

    /// What finding a bucket by `index` and comparing it costs, apart from the bytes of its tables.
    fn compare_cost(
        machine: &Machine,
        comparison: &Comparison,
        index: &Index,
        capacity: u32,
    ) -> Cost {
        let blocks = f64::from(capacity / u32::from(machine.lanes));
        let compare = Cost {
            // A mask to a scalar and its or; then the first bit, the row number, the address.
            instructions: blocks * (comparison.block_cost(machine).instructions + 3.0) + 5.0,
            dependent_loads: 1.0,
            lines: row_bytes(comparison, capacity) as f64 / 64.0,
            table_bytes: 0,
        };
        index.cost(machine.pext) + comparison.key_cost(blocks) + compare
    }

    /// What a group of `kept` rules, `rule_bytes` each or more, with a bucket for each cell or for each list of rules, costs at
    /// least.
    fn least_cost(
        machine: &Machine,
        comparison: &Comparison,
        rule_bytes: usize,
        kept: usize,
        outline: &Outline<'_>,
    ) -> Cost {
        let Outline {
            index, capacity, ..
        } = *outline;
        let compare = Self::compare_cost(machine, comparison, index, capacity);
        let (cells, rules) = (1 << index.bits(), kept * rule_bytes);
        let direct = Cost {
            table_bytes: (cells * rule_bytes * capacity as usize).max(rules),
            ..Cost::default()
        };
        let shared = Cost {
            table_bytes: 4 * cells + rules,
            ..SHARED
        };
        machine.cheaper(compare + direct, compare + shared)
    }

    /// Bytes of the tables for what the lanes compare.
    fn table_bytes(&self, tests: &Tests) -> usize {
        let Assignment {
            capacity,
            cells,
            buckets,
            ..
        } = &self.assignment;
        let row_bytes = row_bytes(tests.lanes(), *capacity);
        if self.is_direct {
            row_bytes * cells.len()
        } else {
            row_bytes * buckets.len() + 4 * cells.len()
        }
    }

    fn cost(&self, tests: &Tests, machine: &Machine) -> Cost {
        let Assignment {
            index, capacity, ..
        } = &self.assignment;
        let compare = Self::compare_cost(machine, tests.lanes(), index, *capacity);
        let tables = Cost {
            table_bytes: self.table_bytes(tests),
            ..Cost::default()
        };
        let lookup = if self.is_direct {
            tables
        } else {
            SHARED + tables
        };
        let verify = match tests {
            Tests::Lanes(_) => Cost::default(),
            Tests::Sieve(_, sieved) => sieved.cost(),
        };
        compare + lookup + verify
    }

    fn emit(&self, input: &Input<'_>, b: &mut ProgramBuilder, splats: &mut Splats) -> ValueId {
        let Assignment {
            index,
            capacity,
            cells,
            buckets,
            ..
        } = &self.assignment;
        let comparison = self.tests.lanes();
        let mut columns = comparison.columns(*capacity);
        columns.push(Column {
            offset: comparison.rule_bytes() * capacity,
            ..result_column(0, *capacity, *capacity)
        });
        let of_row: Vec<&[u32]> = if self.is_direct {
            cells
                .iter()
                .map(|&bucket| &buckets[bucket as usize][..])
                .collect()
        } else {
            buckets.iter().map(|bucket| &bucket[..]).collect()
        };
        let mut table = TableWriter::new("buckets", columns, of_row.len());
        let mut numbers = Vec::new();
        for (row, rules) in of_row.into_iter().enumerate() {
            for (lane, &rule) in rules.iter().enumerate() {
                let verdict_row = input.rows[rule as usize];
                self.tests.numbers(input, verdict_row, &mut numbers);
                numbers.push(verdict_row);
                table.set_lane(row, lane, &numbers);
            }
        }
        let buckets = b.table(table.finish());

        let differing = match &self.tests {
            Tests::Sieve(_, sieved) if !sieved.decides => None,
            _ => comparison.emit_common(b),
        };
        let mut number = index.emit(b, input.machine.pext);
        if !self.is_direct {
            let cells = b.table(flat("cells", "bucket", cells));
            let cell = b.row(cells, number);
            number = b.load(cell, 0, None);
        }
        let row = b.row(buckets, number);
        b.stage(row);
        let rules = LaneRules {
            row,
            capacity: *capacity,
            none: capacity - 1,
            lanes: input.machine.lanes,
        };
        let found = comparison.emit_first(b, differing, &rules, splats);
        match &self.tests {
            Tests::Lanes(_) => found,
            Tests::Sieve(_, sieved) => sieved.emit(b, found),
        }
    }
}
