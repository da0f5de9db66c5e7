//! `direct`: the bits in which rules differ select a class with at most a few rules, whose row says what they want.
//!
//! ```text
//! index  = pext(key, bits)                  at most 16 bits, of one field if that is enough
//! class  = classes[index]                   left out where nearly every value of the index has a class of its own
//! row    | bits | lo, len | row number |    what the only rule of the class wants; the same again for a second one
//! result = row number where the key is as the row says, else MISS
//! ```
//!
//! There are no lanes: what a rule wants of all fields is tested by few scalar instructions on up to eight bytes of the key
//! each, see [`scalar`](crate::structure::scalar). An example of two fields, with `10.0.0.6-10.0.0.7 . 3-4` and
//! `10.0.0.8-10.0.0.9 . 5-6`: addresses differ in bits 1 to 3, so these are the index. Its values 011 and 100 are the classes
//! of the two rules, the others have none. 10.0.0.8 . 7 selects the second row, and 7 - 5 <= 1 does not hold: a miss.
//!
//! An index that holds all bits in which rules differ in a field *decides* the field: the rules of a class match there, and
//! only the bits that all rules share are compared. A set of ports alone is a table of row numbers. An index of other bits,
//! chosen as for [`bucket`](crate::structure::bucket), is tried where no field is enough; it only filters.
//!
//! Cost: one dependent load (none without `classes`), a line of each table, and 3 to 5 instructions for the index, 3 for a row,
//! 2 for a class, 3 or 4 for each eight bytes of the key, 6 for each range, 4 for the result.
//!
//! Source: tables indexed by field values are those of HiCuts' flattened leaves and of direct-lookup route tables (Gupta, Lin
//! and McKeown, 1998), which verify nothing; a row that verifies all fields at once is ours.

use std::collections::HashMap;
use std::rc::Rc;

use crate::builder::ProgramBuilder;
use crate::entity::{FieldId, ValueId};
use crate::key::KeyLayout;
use crate::plan::{Effort, Work};
use crate::program::{BinaryOp, MISS, Program, Table};
use crate::rule::{Match, Rule};
use crate::structure::bits::{
    self, Aim, Bit, COARSE, Candidates, EXACT, Gather, Index, Splitter, Ternary, subsets,
};
use crate::structure::lists::Lists;
use crate::structure::rule_rows::RuleRows;
use crate::structure::scalar::ScalarComparison;
use crate::structure::{Cost, Input, Refusal, empty};
use crate::table::flat;

/// Most bits of an index: a class is found in at most 128 KiB.
const MAX_INDEX_BITS: usize = 16;
/// Most rules of a class; `bucket` compares more of them as quickly.
const MAX_CLASS_RULES: usize = 4;
/// Most columns of a table.
const MAX_COLUMNS: usize = 256;
/// Most bits of an index that decides no field, above the logarithm of the number of rules.
const SPARE_INDEX_BITS: usize = 4;
/// The same for an index that decides one: three rules on wide ranges of ports are not worth 128 KiB, which other work has to
/// leave in the caches.
const SPARE_DECIDING_BITS: usize = 6;
/// Cells for each rule up to which a row for each is no waste, and a search for a smaller index not worth it.
const DENSE_CELLS_PER_RULE: usize = 4;
/// Bytes of a table that no cache misses.
const SMALL_TABLE: usize = 4 << 10;
/// Depths of a chosen index that are tried.
const DEPTHS: usize = 6;
/// Units of work for choosing an index, for each rule. Where rules are copied so often that this is not enough, a class would
/// have too many of them.
const CHOICE_WORK_PER_RULE: u64 = 1000;
/// No rule, in a list of slots; rule r is r + 1.
const FREE: u32 = 0;

/// An index, the rules of its classes, and what is compared of them.
pub(crate) struct Direct {
    index: Index,
    /// The class of each value of the index.
    cells: Vec<u32>,
    /// The rules of each class, the strongest first; positions in `Input::rows`.
    classes: Vec<Box<[u32]>>,
    /// Most rules of a class.
    class_rules: usize,
    compared: Rc<Compared>,
    /// Whether the index is the number of the row, without `classes` between.
    is_flat: bool,
}

/// What is compared of the rules.
struct Compared {
    comparison: ScalarComparison,
    /// By position in `Input::rows`.
    rules: Vec<Rule>,
}

impl Compared {
    /// All rules; of the field that an index decides only what they share.
    fn new(input: &Input<'_>, decided: Option<(FieldId, Match)>) -> Self {
        let compared = |&row: &u32| {
            let mut rule = input.rule(row).clone();
            if let Some((id, shared)) = decided {
                rule.matches[id.index()] = shared;
            }
            rule
        };
        let rules: Vec<Rule> = input.rows.iter().map(compared).collect();
        Self {
            comparison: ScalarComparison::new(input.layout(), &rules),
            rules,
        }
    }
}

impl Direct {
    /// With the bits in which rules differ as its index.
    pub(crate) fn prepare(input: &Input<'_>) -> Result<Self, Refusal> {
        let mut search = Search::new(input);
        search.differing_bits();
        search.found()
    }

    /// With an index of the bits that tell most rules apart: a search that is worth it where nothing quick was found before.
    pub(crate) fn prepare_chosen(input: &Input<'_>) -> Result<Self, Refusal> {
        let mut search = Search::new(input);
        search.chosen_bits();
        search.found()
    }

    /// Whether a search for a smaller index is not worth it.
    pub(crate) fn is_dense(&self, input: &Input<'_>) -> bool {
        self.class_rules == 1 && self.cells.len() <= DENSE_CELLS_PER_RULE * input.rows.len().max(1)
    }

    /// `None` where a row would have too many columns.
    fn new(input: &Input<'_>, painted: Painted, compared: Rc<Compared>) -> Option<Self> {
        let Painted { index, slots, room } = painted;
        let lists = slots.chunks(room).map(|list| {
            let len = list.iter().position(|&slot| slot == FREE);
            &list[..len.unwrap_or(room)]
        });
        let (cells, classes) = classes(lists);
        let mut direct = Self {
            index,
            cells,
            class_rules: classes
                .iter()
                .map(|rules| rules.len())
                .max()
                .unwrap_or(0)
                .max(1),
            classes,
            compared,
            is_flat: true,
        };
        let flat = direct.cost(input);
        direct.is_flat = false;
        let shared = direct.cost(input);
        // A large table of mostly equal rows would be paid for by all other users of the caches.
        let is_waste = flat.table_bytes > SMALL_TABLE
            && direct.cells.len() > DENSE_CELLS_PER_RULE * input.rows.len();
        direct.is_flat =
            !is_waste && input.machine.nanoseconds(&flat) <= input.machine.nanoseconds(&shared);
        (direct.rule_rows().columns().0.len() <= MAX_COLUMNS).then_some(direct)
    }

    pub(crate) fn cost(&self, input: &Input<'_>) -> Cost {
        let rows = if self.is_flat {
            self.cells.len()
        } else {
            self.classes.len()
        };
        let classes = if self.is_flat {
            Cost::default()
        } else {
            Cost {
                instructions: 2.0,
                dependent_loads: 1.0,
                lines: 1.0,
                table_bytes: 2 * self.cells.len(),
            }
        };
        self.index.cost(input.machine.pext) + classes + self.rule_rows().cost(rows)
    }

    pub(crate) fn build(&self, input: &Input<'_>) -> Program {
        if input.rows.is_empty() {
            return empty(input);
        }
        let mut b = input.program();
        let rows = b.table(self.rows(input));
        let mut number = self.index.emit(&mut b, input.machine.pext);
        if !self.is_flat {
            let classes = b.table(flat("classes", "class", &self.cells));
            let cell = b.row(classes, number);
            number = b.load(cell, 0, None);
        }
        let row = b.row(rows, number);
        b.stage(row);
        let found = self.emit(&mut b, row);
        input.finish(b, found)
    }

    /// Emits the tests of the rules of a row; yields the number of the strongest that matches, or `MISS`.
    fn emit(&self, b: &mut ProgramBuilder, row: ValueId) -> ValueId {
        let comparison = &self.compared.comparison;
        let width = comparison.columns().len();
        let mut found: Option<ValueId> = None;
        for rule in 0..self.class_rules {
            let first = (rule * (width + 1)) as u8;
            let number = b.load(row, first + width as u8, None);
            let own = comparison.emit(b, row, first, number);
            found = Some(found.map_or(own, |found| b.binary(BinaryOp::Min, found, own)));
        }
        found.unwrap_or_else(|| b.constant(MISS.into()))
    }

    fn rule_rows(&self) -> RuleRows<'_> {
        RuleRows {
            comparison: &self.compared.comparison,
            rules: self.class_rules,
            is_numbered: true,
        }
    }

    /// The table of what the rules of each class want.
    fn rows(&self, input: &Input<'_>) -> Table {
        let rule = |&rule: &u32| {
            let rule = rule as usize;
            (&self.compared.rules[rule], input.rows[rule])
        };
        if self.is_flat {
            let of_cell = |&class: &u32| self.classes[class as usize].iter().map(rule);
            self.rule_rows().table(self.cells.iter().map(of_cell))
        } else {
            let classes = self.classes.iter();
            self.rule_rows()
                .table(classes.map(|class| class.iter().map(rule)))
        }
    }
}

/// Gives equal lists of slots the same class: the class of each list, and the rules of each class.
fn classes<'a>(slots: impl Iterator<Item = &'a [u32]>) -> (Vec<u32>, Vec<Box<[u32]>>) {
    let mut known: HashMap<&[u32], u32> = HashMap::new();
    let mut classes: Vec<Box<[u32]>> = Vec::new();
    let mut cells: Vec<u32> = Vec::new();
    let mut before: Option<(&[u32], u32)> = None;
    for list in slots {
        // Neighbours share their rules most often.
        let class = match before {
            Some((same, class)) if same == list => class,
            _ => *known.entry(list).or_insert_with(|| {
                classes.push(list.iter().map(|slot| slot - 1).collect());
                classes.len() as u32 - 1
            }),
        };
        before = Some((list, class));
        cells.push(class);
    }
    (cells, classes)
}

/// The search for the cheapest index.
struct Search<'a> {
    input: &'a Input<'a>,
    best: Option<(f64, Direct)>,
    /// What is compared where the index decides no field.
    undecided: Option<Rc<Compared>>,
    /// Most rules that an index that failed held, and its fields.
    most_placed: (usize, String),
    /// The least of what was no better than another structure, in nanoseconds.
    beaten: f64,
}

impl<'a> Search<'a> {
    fn new(input: &'a Input<'a>) -> Self {
        Self {
            input,
            best: None,
            undecided: None,
            most_placed: (0, String::new()),
            beaten: f64::INFINITY,
        }
    }

    fn found(self) -> Result<Direct, Refusal> {
        let (placed, fields) = self.most_placed;
        match self.best {
            Some((_, direct)) => Ok(direct),
            None if self.beaten.is_finite() => Err(Refusal::Slower {
                at_least: self.beaten,
            }),
            None => Err(Refusal::SharedClasses {
                max: MAX_CLASS_RULES,
                fields: fields.into(),
                placed,
                rules: self.input.rows.len(),
            }),
        }
    }

    /// Most rules of a class with which an index may yet be the best, where it decides no field.
    fn room(&mut self, index: &Index) -> usize {
        let input = self.input;
        let compared = self.undecided();
        let at_least = |rules: usize| {
            let rows = RuleRows {
                comparison: &compared.comparison,
                rules,
                is_numbered: true,
            };
            input
                .machine
                .nanoseconds(&(index.cost(input.machine.pext) + rows.cost(0)))
        };
        let best = self.best.as_ref().map_or(f64::INFINITY, |best| best.0);
        for rules in 1..=MAX_CLASS_RULES {
            let at_least = at_least(rules);
            if input.is_worth(at_least).is_err() {
                self.beaten = self.beaten.min(at_least);
                return rules - 1;
            }
            if at_least >= best {
                return rules - 1;
            }
        }
        MAX_CLASS_RULES
    }

    /// All that rules want, to be compared.
    fn undecided(&mut self) -> Rc<Compared> {
        let new = || Rc::new(Compared::new(self.input, None));
        self.undecided.get_or_insert_with(new).clone()
    }

    /// Most bits of an index with so many to spare.
    fn max_bits(&self, spare: usize) -> usize {
        let enough = self.input.rows.len().max(1).ilog2() as usize + spare;
        enough.min(MAX_INDEX_BITS)
    }

    /// Tries the bits in which rules differ: those of each field, the first and the last of them where they are too many, and
    /// those of all fields together.
    fn differing_bits(&mut self) {
        let mut all: Vec<Bit> = Vec::new();
        let (most, deciding) = (
            self.max_bits(SPARE_INDEX_BITS),
            self.max_bits(SPARE_DECIDING_BITS),
        );
        for id in self.input.layout().field_ids() {
            let (differing, shared) = reduce(self.input, id);
            if differing.len() <= deciding {
                self.consider(&differing, Some((id, shared)));
            } else {
                self.consider(&differing[differing.len() - most..], None);
                self.consider(&differing[..most], None);
            }
            all.extend(differing);
        }
        if all.len() <= most {
            self.consider(&all, None);
        }
    }

    /// Tries the bits of all fields that tell most rules apart.
    fn chosen_bits(&mut self) {
        let most = match self.input.effort {
            Effort::Fast => 1 << 8,
            Effort::Balanced => 1 << 9,
            Effort::Best => 1 << 14,
        };
        // A sample would hide which rules share a class.
        if self.input.rows.len() > most {
            return;
        }
        let layout = self.input.layout();
        let mut pieces = Vec::new();
        for &row in &self.input.rows {
            bits::pieces(layout, self.input.rule(row), COARSE, &mut pieces);
        }
        let candidates = Candidates::new(layout, &pieces);
        let mut splitter = Splitter::new(layout, &candidates, COARSE);
        let mut pieces: Vec<Ternary> = Vec::with_capacity(pieces.len());
        for &row in &self.input.rows {
            pieces.extend_from_slice(splitter.split(self.input.rule(row)));
        }
        let aim = Aim {
            max_bits: self.max_bits(SPARE_INDEX_BITS),
            capacity: 1.0,
            // No rule may be given up.
            max_wild: MAX_INDEX_BITS as u32,
        };
        let work = Work::new(CHOICE_WORK_PER_RULE * self.input.rows.len() as u64);
        let chosen = candidates.choose(&pieces, &aim, &work);
        self.input.work.spend(work.spent() as usize);
        let bits = candidates.bits(&chosen.candidates);
        let depths = bits.len().saturating_sub(DEPTHS - 1)..=bits.len();
        // Rules are split once for all depths, but those behind the first that finds no room are not.
        let all = Candidates::of(layout, &bits);
        let mut splitter = Splitter::new(layout, &all, EXACT);
        let mut rules = Lists::default();
        // The deepest index has the smallest classes.
        for depth in depths.rev() {
            let bits = &bits[..depth];
            let index = Index::new(layout, bits);
            let room = self.room(&index);
            if room == 0 {
                continue;
            }
            let gather = Gather::new(all.mask(bits));
            let painted = Painted::new(index, room, self.input.rows.len(), |rule, cells| {
                if rule == rules.len() {
                    let row = self.input.rows[rule];
                    rules.push(splitter.split(self.input.rule(row)).iter().copied());
                }
                let cell = |piece: &Ternary| {
                    let (value, wild) = (gather.of(piece.value), gather.of(!piece.care));
                    (value as u32, wild as u32)
                };
                cells.extend(rules.get(rule).iter().map(cell));
            });
            self.consider_painted(painted, &fields_of(layout, bits), None);
        }
    }

    /// Tries an index; `decided` is the field that it decides, and what all rules share there.
    fn consider(&mut self, bits: &[Bit], decided: Option<(FieldId, Match)>) {
        let layout = self.input.layout();
        let index = Index::new(layout, bits);
        let all = Candidates::of(layout, bits);
        let mut splitter = Splitter::new(layout, &all, EXACT);
        let wild = (1 << index.bits()) - 1;
        let rows = &self.input.rows;
        let painted = Painted::new(index, MAX_CLASS_RULES, rows.len(), |rule, cells| {
            let pieces = splitter.split(self.input.rule(rows[rule]));
            let cell = |piece: &Ternary| (piece.value as u32, !piece.care as u32 & wild);
            cells.extend(pieces.iter().map(cell));
        });
        self.consider_painted(painted, &fields_of(layout, bits), decided);
    }

    /// Takes what was painted, if it is cheaper than what was painted before, or remembers that an index of `fields` failed.
    fn consider_painted(
        &mut self,
        painted: Result<Painted, usize>,
        fields: &[FieldId],
        decided: Option<(FieldId, Match)>,
    ) {
        self.input.work.spend(self.input.rows.len());
        match painted {
            Ok(painted) => {
                self.input.work.spend(painted.slots.len());
                let compared = match decided {
                    Some(_) => Rc::new(Compared::new(self.input, decided)),
                    None => self.undecided(),
                };
                if let Some(direct) = Direct::new(self.input, painted, compared) {
                    let cost = self.input.machine.nanoseconds(&direct.cost(self.input));
                    if self.best.as_ref().is_none_or(|(least, _)| cost < *least) {
                        self.best = Some((cost, direct));
                    }
                }
            }
            Err(placed) if placed > self.most_placed.0 || self.most_placed.1.is_empty() => {
                let layout = self.input.layout();
                let names: Vec<&str> = fields.iter().map(|&id| layout.field(id).name()).collect();
                self.most_placed = (placed, names.join(", "));
            }
            Err(_) => {}
        }
    }
}

/// The fields that `bits` are of.
fn fields_of(layout: &KeyLayout, bits: &[Bit]) -> Vec<FieldId> {
    let mut start = 0;
    let mut fields = Vec::new();
    for id in layout.field_ids() {
        let end = start + Bit::from(layout.field(id).bits());
        if bits.iter().any(|bit| (start..end).contains(bit)) {
            fields.push(id);
        }
        start = end;
    }
    fields
}

/// The bits of a field in which rules differ, the least significant first, and what they share. The rules match where the key
/// has what they share and they agree on the bits in which they differ.
fn reduce(input: &Input<'_>, id: FieldId) -> (Vec<Bit>, Match) {
    let field = input.layout().field(id);
    // Bits that some rule looks at; bits that all fix; their value, and where it is not the same.
    let (mut looked_at, mut fixed, mut varying) = (0, field.max(), 0);
    let mut first: Option<u128> = None;
    for &row in &input.rows {
        let condition = &input.rule(row).matches[id.index()];
        let (lo, hi) = (condition.lower(field), condition.upper(field));
        let (own_looked_at, own_fixed) = match condition.care(field) {
            Some(care) => (care, care),
            None => {
                let below = |bits: u32| 1u128.checked_shl(bits).map_or(u128::MAX, |bit| bit - 1);
                let wild = lo.trailing_zeros().min(hi.trailing_ones());
                let differing = 128 - (lo ^ hi).leading_zeros();
                (field.max() & !below(wild), field.max() & !below(differing))
            }
        };
        looked_at |= own_looked_at;
        fixed &= own_fixed;
        varying |= lo ^ *first.get_or_insert(lo);
    }
    let shared = fixed & !varying;
    let differing = looked_at & !shared;
    let before = input.layout().fields()[..id.index()].iter();
    let start: Bit = before.map(|field| Bit::from(field.bits())).sum();
    let bits = (0..Bit::from(field.bits())).filter(|&bit| differing >> bit & 1 == 1);
    let shared = Match::Mask {
        value: first.unwrap_or(0) & shared,
        mask: shared,
    };
    (
        bits.map(|bit| start + bit).collect(),
        shared.canonical(field),
    )
}

/// The rules that each value of an index leaves.
struct Painted {
    index: Index,
    /// For each value so many slots: rules by position in `Input::rows`, the strongest first, then [`FREE`].
    slots: Vec<u32>,
    room: usize,
}

impl Painted {
    /// Gives every rule to the values that keys which it matches have: `put_cells` adds those of a rule, as fixed and wild
    /// bits. Fails with the number of rules before the first that finds no room, or that there is no time for: rules that
    /// are wild in many bits have many pieces in common.
    fn new(
        index: Index,
        room: usize,
        rules: usize,
        mut put_cells: impl FnMut(usize, &mut Vec<(u32, u32)>),
    ) -> Result<Self, usize> {
        let mut slots = vec![FREE; room << index.bits()];
        let mut steps_left = 4 * ((MAX_CLASS_RULES << index.bits()) + rules);
        let mut own: Vec<(u32, u32)> = Vec::new();
        for rule in 0..rules {
            own.clear();
            put_cells(rule, &mut own);
            own.sort_unstable();
            own.dedup();
            for &(fixed, wild) in &own {
                for subset in subsets(wild.into()) {
                    let start = (fixed | subset as u32) as usize * room;
                    let list = &mut slots[start..start + room];
                    let mine = rule as u32 + 1;
                    let is_mine = |&slot: &u32| slot == FREE || slot == mine;
                    match list.iter().position(is_mine) {
                        Some(place) if steps_left > 0 => list[place] = mine,
                        _ => return Err(rule),
                    }
                    steps_left -= 1;
                }
            }
        }
        Ok(Self { index, slots, room })
    }
}
