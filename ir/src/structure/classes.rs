//! `classes`: values of a field are in one class where the same rules want them; a row of bits for each class, anded over
//! the fields.
//!
//! ```text
//! for each field   class = search(x)              a table of all values, or radix, or a tree: whichever is quickest
//!                  row   = rows[class]            bit r is set where rule r wants the values of the class
//! result           the rule of the first bit of the rows anded
//! ```
//!
//! The bounds of the rules' intervals cut the values of a field into segments, within which all values are wanted by the same
//! rules. Segments with equal rows are one class: the firewall rule that wants any port and the hundred that want port 443
//! make one class of all other ports. Overlap costs nothing: whether a key matches one rule or a thousand, the same rows are
//! anded. That is what this structure is for, where any index of buckets would copy each rule to most of them.
//!
//! **A worked example.** `10.0.0.0/8 80`, `10.1.0.0/16 any`, `any 443`, the strongest first:
//!
//! ```text
//! addresses up to 9.255.255.255 -> 0: 001      ports up to 79 -> 0: 010
//!           up to 10.0.255.255  -> 1: 101            80       -> 1: 110
//!           up to 10.1.255.255  -> 2: 111            up to 442 -> 0
//!           up to 10.255.255.255 -> 1                443      -> 2: 011
//!           all others           -> 0                all others -> 0
//! ```
//!
//! (The first rule is the leftmost bit.) Three classes for five segments of either field. Of 10.1.2.3 . 443, 111 & 011 = 011:
//! the second rule.
//!
//! **Products.** Fields with few classes, as protocols, share rows: one for each combination, and one row less to and.
//!
//! **Cost**: a search for each field, a load and an `and` for each field and 256 rules, and the first bit. The searches wait for
//! no other field, so their loads overlap. Rows longer than 64 numbers, 2048 rules, are visited in blocks until one has a bit.
//!
//! **Memory** is the number of classes times that of rules / 8 bytes, so it is quadratic where every rule has values of its own:
//! 25 MB for 10,000 rules. Constants bound it, and the rules; beyond them it refuses.
//!
//! Sources: rows of bits per interval of a field are Lakshman and Stiliadis' (1998), equivalence classes of values those of
//! recursive flow classification (Gupta and McKeown, 1999). Aggregates of rows (Baboescu and Varghese, 2001) were left out: an
//! exit that is not foreseen costs more than the vectors that it spares.

use std::collections::HashMap;

use crate::builder::ProgramBuilder;
use crate::entity::{FieldId, ValueId};
use crate::field::Field;
use crate::program::{BinaryOp, Program};
use crate::rule::Match;
use crate::structure::bit_rows::{BitRows, MAX_BLOCK, MAX_NARROW, Selector, Shape};
use crate::structure::radix::Radix;
use crate::structure::segments::Segments;
use crate::structure::tree::{self, Tree};
use crate::structure::{Cost, Input, Refusal, empty};
use crate::table::flat;

/// Most rules.
const MAX_RULES: usize = 1 << 15;
/// Most bytes of rows, those of all fields together.
const MAX_BYTES: usize = 32 << 20;
/// Most bytes of rows that two fields have together where each combination of their classes gets one. ClassBench's lists of
/// 1000 rules took 0.94 of the time with that (AMD EPYC, 8 lanes, 2026-11-30).
const MAX_JOINED: usize = 64 << 10;
/// Most fields or products of fields: with more, the numbers of their classes would fill the registers until the first bit
/// is found.
const MAX_PRODUCTS: usize = 5;
/// Units of work for finding a segment, apart from its row.
const WORK_PER_SEGMENT: usize = 32;
/// Most intervals that the values of a mask may be.
const MAX_INTERVALS: u32 = 64;
/// Most bytes of a field whose values may have an entry each.
const MAX_FLAT_BYTES: u8 = 2;

/// Which number is the first, which bit, and the rule's row; the row of bits waits for a class.
const FIXED: Cost = Cost {
    instructions: 12.0,
    dependent_loads: 3.0,
    lines: 1.0,
    table_bytes: 0,
};

/// The class of a value in a table of all values.
const FLAT: Cost = Cost {
    instructions: 3.0,
    dependent_loads: 1.0,
    lines: 1.0,
    table_bytes: 0,
};

/// The classes of each field in which rules differ.
pub(crate) struct Classes {
    /// Rows of the verdicts, the strongest first: a bit each.
    rules: Vec<u32>,
    shape: Shape,
    products: Vec<Product>,
}

/// Fields with so few classes together that each combination of them has a row of its own.
struct Product {
    fields: Vec<Classified>,
    /// Row after row, that of the first class of each field first, then that of the second class of the last field.
    bits: Vec<u8>,
}

/// The classes of a field.
struct Classified {
    segments: Segments,
    classes: u32,
    search: Search,
}

/// How the class of a value is found.
enum Search {
    Flat,
    Radix(Radix),
    Tree(Tree),
}

impl Classes {
    /// Classes of the rules of these rows.
    pub(crate) fn prepare(input: &Input<'_>, rows: &[u32]) -> Result<Self, Refusal> {
        if rows.len() > MAX_RULES {
            return Err(Refusal::TooManyRules {
                rules: rows.len(),
                max: MAX_RULES,
            });
        }
        let least = Self::least_cost(input, rows);
        if least.table_bytes > MAX_BYTES {
            return Err(Refusal::OverBudget {
                bytes: least.table_bytes,
                budget: MAX_BYTES,
            });
        }
        let shape = shape(input, rows);
        let mut products: Vec<Product> = Vec::new();
        for id in input.layout().field_ids() {
            let mut conditions = rows.iter().map(|&row| &input.rule(row).matches[id.index()]);
            if conditions.any(|condition| *condition != Match::Any) {
                let used: usize = products.iter().map(|product| product.bits.len()).sum();
                products.push(Product::of_field(input, id, rows, shape, used)?);
            }
        }
        products.sort_by_key(|product| product.bits.len());
        let max_joined = max_joined(shape);
        let mut joined: Vec<Product> = Vec::new();
        for product in products {
            match joined.pop() {
                Some(last) if last.joined_bytes(&product, shape) <= max_joined => {
                    joined.push(last.join(product, shape));
                }
                last => joined.extend(last.into_iter().chain([product])),
            }
        }
        if joined.len() > MAX_PRODUCTS {
            return Err(Refusal::TooManyFields {
                fields: joined.len(),
                max: MAX_PRODUCTS,
            });
        }
        Ok(Self {
            rules: rows.to_vec(),
            shape,
            products: joined,
        })
    }

    /// What a lookup costs at least: a row of one of the fields.
    pub(crate) fn floor(input: &Input<'_>) -> Cost {
        let vectors = input.rows.len() as f64 / (32.0 * f64::from(input.machine.lanes));
        Cost {
            instructions: FIXED.instructions + 6.0 * vectors,
            ..FIXED
        }
    }

    /// The same for the rules of these rows, told from their matches: no two of the lowest values that rules want of a field are
    /// in one class, since a rule does not want what is below its own.
    pub(crate) fn least_cost(input: &Input<'_>, rows: &[u32]) -> Cost {
        let shape = shape(input, rows);
        let most_joined = max_joined(shape) / shape.row_bytes();
        // Two fields with more classes than that are not joined.
        let (mut apart, mut searches, mut bytes) = (0, 0.0, 0);
        let mut lowers: Vec<u128> = Vec::with_capacity(rows.len());
        for id in input.layout().field_ids() {
            let field = input.layout().field(id);
            let conditions = rows.iter().map(|&row| &input.rule(row).matches[id.index()]);
            if conditions.clone().all(|found| *found == Match::Any) {
                continue;
            }
            lowers.clear();
            lowers.extend(conditions.map(|found| found.lower(field)));
            lowers.sort_unstable();
            lowers.dedup();
            apart += usize::from(lowers.len() * lowers.len() > most_joined);
            bytes += shape.row_bytes() * lowers.len();
            searches += match field.bytes() {
                ..=MAX_FLAT_BYTES => FLAT.instructions,
                _ => tree::FLOOR.instructions,
            };
        }
        let rows = shape.cost(apart.max(1), 1.0);
        Cost {
            instructions: FIXED.instructions + searches + rows.instructions,
            lines: FIXED.lines + rows.lines,
            table_bytes: bytes,
            ..FIXED
        }
    }

    pub(crate) fn cost(&self, input: &Input<'_>) -> Cost {
        let fields = self.products.iter().flat_map(|product| &product.fields);
        let searches = fields.map(|field| field.search.cost(input, &field.segments));
        // They run side by side.
        let deepest = searches.clone().map(|cost| cost.dependent_loads);
        let deepest = deepest.fold(0.0, f64::max);
        let searches = searches.fold(Cost::default(), |sum, cost| sum + cost);
        let rows = Cost {
            table_bytes: self.shape.rules_bytes()
                + self
                    .products
                    .iter()
                    .map(|product| product.bits.len())
                    .sum::<usize>(),
            ..self.shape.cost(self.products.len(), 1.0)
        };
        Cost {
            dependent_loads: FIXED.dependent_loads + deepest,
            ..FIXED + searches + rows
        }
    }

    pub(crate) fn build(&self, input: &Input<'_>) -> Program {
        if input.rows.is_empty() {
            return empty(input);
        }
        let mut b = input.program();
        let found = self.emit(input, &mut b);
        input.finish(b, found)
    }

    /// Emits the lookup; yields the row found, or `MISS`. May end the current block and leave another one current.
    pub(crate) fn emit(&self, input: &Input<'_>, b: &mut ProgramBuilder) -> ValueId {
        let numbers: Vec<ValueId> = self
            .products
            .iter()
            .map(|product| product.emit(input, b))
            .collect();
        let bits = self.rules.len() as u64;
        let tables = self.products.iter().zip(numbers).map(|(product, number)| {
            let names = product.fields.iter();
            let names = names.map(|field| input.layout().field(field.segments.field()).name());
            let name = format!("rules of {}", names.collect::<Vec<_>>().join(", "));
            let table = self
                .shape
                .table(name.into(), "rules", bits, product.bits.clone());
            (Selector::Number(number), b.table(table))
        });
        let rows = BitRows {
            tables: tables.collect(),
            shape: self.shape,
            bits,
            lanes: input.machine.lanes,
            map: None,
        };
        let rules = b.table(self.shape.rules_table(&self.rules));
        rows.emit_first(b, rules)
    }
}

/// How the rows of bits of the rules of `rows` look.
fn shape(input: &Input<'_>, rows: &[u32]) -> Shape {
    let bits = rows.len() as u64;
    if bits <= MAX_NARROW {
        Shape::narrow(bits)
    } else {
        Shape::blocks(bits, input.machine.lanes, MAX_BLOCK)
    }
}

/// Most bytes of rows of a product of fields. Where rows are scalars, there is nothing to gain.
fn max_joined(shape: Shape) -> usize {
    match shape {
        Shape::Narrow { .. } => 0,
        Shape::Blocks { .. } => MAX_JOINED,
    }
}

impl Product {
    /// The classes of a field of the rules of `rows`, where other fields have `used` bytes of rows.
    fn of_field(
        input: &Input<'_>,
        id: FieldId,
        rows: &[u32],
        shape: Shape,
        used: usize,
    ) -> Result<Self, Refusal> {
        let field = input.layout().field(id);
        // Where the values of a rule begin, and where they have ended.
        let mut turns: Vec<(u128, u32)> = Vec::new();
        for (bit, &row) in rows.iter().enumerate() {
            let condition = &input.rule(row).matches[id.index()];
            let intervals = intervals(field, condition);
            let intervals = intervals.ok_or_else(|| Refusal::NotAnInterval {
                field: field.name().into(),
            })?;
            for (lo, hi) in intervals {
                turns.push((lo, bit as u32));
                if hi < field.max() {
                    turns.push((hi + 1, bit as u32));
                }
            }
        }
        turns.sort_unstable();
        input
            .work
            .spend(turns.len() * (WORK_PER_SEGMENT + shape.row_bytes() / 8));
        let mut turns = turns.into_iter().peekable();
        let mut row = vec![0u8; shape.row_bytes()];
        let mut known: HashMap<Vec<u8>, u32> = HashMap::new();
        let mut bits: Vec<u8> = Vec::new();
        let (mut lasts, mut of_segment) = (Vec::new(), Vec::new());
        let mut at = 0;
        loop {
            while let Some((_, bit)) = turns.next_if(|&(value, _)| value == at) {
                row[bit as usize / 8] ^= 1 << (bit % 8);
            }
            let class = match known.get(&row) {
                Some(&class) => class,
                None => {
                    let bytes = used + bits.len() + row.len();
                    if bytes > MAX_BYTES {
                        let budget = MAX_BYTES;
                        return Err(Refusal::OverBudget { bytes, budget });
                    }
                    bits.extend_from_slice(&row);
                    let class = known.len() as u32;
                    known.insert(row.clone(), class);
                    class
                }
            };
            let last = turns.peek().map_or(field.max(), |&(value, _)| value - 1);
            if of_segment.last() == Some(&class) {
                lasts.pop();
            } else {
                of_segment.push(class);
            }
            lasts.push(last);
            if last == field.max() {
                break;
            }
            at = last + 1;
        }
        let classes = known.len() as u32;
        let segments = Segments::of_classes(input.layout(), id, lasts, of_segment, classes);
        let field = Classified {
            search: Search::quickest(input, &segments),
            segments,
            classes,
        };
        Ok(Self {
            fields: vec![field],
            bits,
        })
    }

    /// Bytes of the rows of all combinations with the classes of `other`.
    fn joined_bytes(&self, other: &Self, shape: Shape) -> usize {
        self.bits.len() / shape.row_bytes() * other.bits.len()
    }

    /// All combinations with the classes of `other`.
    fn join(self, other: Self, shape: Shape) -> Self {
        let bytes = shape.row_bytes();
        let rows = self.bits.chunks(bytes).flat_map(|own| {
            let others = other.bits.chunks(bytes);
            others.flat_map(move |row| own.iter().zip(row).map(|(a, b)| a & b))
        });
        Self {
            bits: rows.collect(),
            fields: self.fields.into_iter().chain(other.fields).collect(),
        }
    }

    /// Emits the searches; yields the number of the row.
    fn emit(&self, input: &Input<'_>, b: &mut ProgramBuilder) -> ValueId {
        let mut number: Option<ValueId> = None;
        for field in &self.fields {
            let class = field.emit(input, b);
            number = Some(match number {
                None => class,
                Some(before) => {
                    let first = b.binary_const(BinaryOp::Mul, before, field.classes.into());
                    b.binary(BinaryOp::Add, first, class)
                }
            });
        }
        number.unwrap_or_else(|| b.constant(0))
    }
}

impl Classified {
    /// Emits the search; yields the class.
    fn emit(&self, input: &Input<'_>, b: &mut ProgramBuilder) -> ValueId {
        let id = self.segments.field();
        match &self.search {
            Search::Flat => {
                let layout = input.layout();
                let field = layout.field(id);
                let offset = layout.offset(id) as u16;
                let value = b.load_key(offset, field.bytes(), field.byte_order());
                let name = format!("{} classes", field.name());
                let table = b.table(flat(&name, "class", &self.of_value()));
                let row = b.row(table, value);
                b.load(row, 0, None)
            }
            Search::Radix(radix) => radix.emit(b, input, &self.segments),
            Search::Tree(tree) => tree.emit(b, &self.segments),
        }
    }

    /// The class of each value.
    fn of_value(&self) -> Vec<u32> {
        let mut of_value = Vec::new();
        for (&last, &class) in self.segments.lasts().iter().zip(self.segments.rows()) {
            of_value.resize(last as usize + 1, class);
        }
        of_value
    }
}

impl Search {
    /// The one that is estimated to take least time.
    fn quickest(input: &Input<'_>, segments: &Segments) -> Self {
        let tree = Self::Tree(Tree::of(input, segments));
        let radix = Radix::of(input, segments).ok().map(Self::Radix);
        let field = input.layout().field(segments.field());
        let flat = (field.bytes() <= MAX_FLAT_BYTES).then_some(Self::Flat);
        let nanoseconds = |search: &Self| input.machine.nanoseconds(&search.cost(input, segments));
        radix.into_iter().chain(flat).fold(tree, |best, other| {
            if nanoseconds(&other) < nanoseconds(&best) {
                other
            } else {
                best
            }
        })
    }

    fn cost(&self, input: &Input<'_>, segments: &Segments) -> Cost {
        match self {
            Self::Flat => {
                let values = input.layout().field(segments.field()).max() as usize + 1;
                let classes = segments.rows().iter().max().map_or(0, |&most| most + 1);
                Cost {
                    table_bytes: values * if classes <= 0x100 { 1 } else { 2 },
                    ..FLAT
                }
            }
            Self::Radix(radix) => radix.cost(),
            Self::Tree(tree) => tree.cost(),
        }
    }
}

/// The intervals that the values of a condition are, `None` for a mask with too many.
fn intervals(field: &Field, condition: &Match) -> Option<Vec<(u128, u128)>> {
    let (lo, hi) = (condition.lower(field), condition.upper(field));
    let Match::Mask { mask, .. } = *condition else {
        return Some(vec![(lo, hi)]);
    };
    let wild = field.max() & !mask;
    let low = (1u128 << wild.trailing_ones()) - 1;
    let high = wild & !low;
    if 1u32.checked_shl(high.count_ones())? > MAX_INTERVALS {
        return None;
    }
    let next = |start: &u128| Some(start.wrapping_sub(high) & high).filter(|&next| next != 0);
    let starts = std::iter::successors(Some(0), next);
    Some(starts.map(|start| (lo | start, lo | start | low)).collect())
}

#[cfg(test)]
impl Classes {
    /// The rows of the rules that have a bit.
    pub(crate) fn rows(&self) -> &[u32] {
        &self.rules
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Options, normalise};
    use crate::structure::tests::{ports, range, set};
    use crate::{KeyLayout, Rule};

    fn classes(rules: &crate::RuleSet) -> Result<Classes, Refusal> {
        let input = normalise(rules, &Options::default());
        Classes::prepare(&input, &input.rows)
    }

    fn counts(classes: &Classes) -> Vec<u32> {
        let fields = classes.products.iter().flat_map(|product| &product.fields);
        let mut counts: Vec<u32> = fields.map(|field| field.classes).collect();
        counts.sort_unstable();
        counts
    }

    #[test]
    fn values_that_the_same_rules_want_are_one_class_wherever_they_lie() {
        // Inside and outside of the first, which cuts the second in two, and outside of both.
        let rules = [
            Rule::new([range(100, 199), Match::Any]),
            Rule::new([range(50, 249), range(7, 7)]),
        ];
        let classes = classes(&set(ports(), rules)).unwrap();
        assert_eq!(counts(&classes), [2, 3]);
    }

    #[test]
    fn a_field_that_no_rule_looks_at_is_not_searched() {
        let rules = (0..100).map(|i| Rule::new([Match::Any, range(i, 2 * i)]));
        let classes = classes(&set(ports(), rules)).unwrap();
        assert_eq!(counts(&classes).len(), 1);
    }

    #[test]
    fn fields_with_few_classes_share_rows_where_rows_are_vectors() {
        let of_rules = |count: u128| {
            let rules =
                (0..count).map(|i| Rule::new([range(9 * i, 9 * i + 4), range(i % 5, i % 5)]));
            classes(&set(ports(), rules)).unwrap().products.len()
        };
        assert_eq!([of_rules(60), of_rules(80)], [2, 1]);
    }

    #[test]
    fn a_mask_is_the_intervals_of_its_values() {
        let field = Field::inet_service("port");
        let mask = |mask| Match::Mask { value: 0, mask };
        let found = intervals(&field, &mask(0xfff5)).unwrap();
        assert_eq!(found, [(0, 0), (2, 2), (8, 8), (10, 10)]);
        let found = intervals(&field, &mask(0xffdc)).unwrap();
        assert_eq!(found, [(0, 3), (32, 35)]);
        // 128 of them.
        assert_eq!(intervals(&field, &mask(0xff01)), None);
    }

    #[test]
    fn rows_beyond_the_bound_are_refused_before_they_are_made() {
        let layout = KeyLayout::packed([Field::ipv4_addr("saddr")]).unwrap();
        let rules = |count: u128| {
            set(
                layout.clone(),
                (0..count).map(|i| Rule::new([Match::Exact(2 * i)])),
            )
        };
        // A class each, of so many bits.
        let over = classes(&rules(17_000)).err();
        assert!(
            matches!(
                over,
                Some(Refusal::OverBudget {
                    budget: MAX_BYTES,
                    ..
                })
            ),
            "{over:?}"
        );
        let over = classes(&rules(MAX_RULES as u128 + 1)).err();
        assert!(
            matches!(over, Some(Refusal::TooManyRules { .. })),
            "{over:?}"
        );
    }
}
