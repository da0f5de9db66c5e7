//! Writes programs as text. A [`VerifiedProgram`] is written like its program, with the bounds that the verifier proved as
//! comments.

use std::collections::HashMap;
use std::fmt;

use crate::entity::{BlockId, TableId, ValueId};
use crate::field::{ByteOrder, FieldKind};
use crate::key::KeyLayout;
use crate::program::{
    BinaryOp, Block, CompareOp, Inst, LaneCompareOp, MaskOp, Program, Table, Terminator, Type,
};
use crate::verify::VerifiedProgram;

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_program(f, self, |_| None)
    }
}

impl fmt::Display for VerifiedProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_program(f, self.program(), |value| {
            let facts = self.facts(value);
            (facts.ty == Type::Scalar && facts.max != u64::MAX).then_some(facts.max)
        })
    }
}

fn write_program(
    f: &mut fmt::Formatter<'_>,
    program: &Program,
    bound: impl Fn(ValueId) -> Option<u64>,
) -> fmt::Result {
    write_layout(f, &program.layout)?;
    writeln!(f, "verdicts {}", program.verdicts)?;
    for (i, table) in program.tables.iter().enumerate() {
        write!(f, "\ntable{i} ")?;
        write_table(f, table)?;
    }
    if program.scratch > 0 {
        writeln!(f, "\nscratch {}", program.scratch)?;
    }
    if let Some(row) = program.staged {
        writeln!(f, "\nstaged {row}")?;
    }
    let rows = row_values(program);
    for (i, block) in program.blocks.iter().enumerate() {
        write!(f, "\nblock{i}")?;
        write_head(f, block)?;
        for &(value, inst) in &block.insts {
            write!(f, "  {value} = {inst}")?;
            write_comment(f, program, &rows, inst, bound(value))?;
            writeln!(f)?;
        }
        writeln!(f, "  {}", block.terminator)?;
    }
    Ok(())
}

/// The table of each value that is a row, so that loads can name their column.
fn row_values(program: &Program) -> HashMap<ValueId, TableId> {
    let blocks = program.blocks.iter();
    let params = blocks.clone().flat_map(|block| &block.params);
    let insts = blocks.flat_map(|block| &block.insts);
    let params = params.filter_map(|&(value, ty)| match ty {
        Type::Row(table) => Some((value, table)),
        _ => None,
    });
    let insts = insts.filter_map(|&(value, inst)| match inst {
        Inst::Row { table, .. } => Some((value, table)),
        _ => None,
    });
    params.chain(insts).collect()
}

fn write_comment(
    f: &mut fmt::Formatter<'_>,
    program: &Program,
    rows: &HashMap<ValueId, TableId>,
    inst: Inst,
    bound: Option<u64>,
) -> fmt::Result {
    let column = match inst {
        Inst::Load { row, column, .. } | Inst::LoadLanes { row, column, .. } => rows
            .get(&row)
            .and_then(|table| program.tables.get(table.index()))
            .and_then(|table| table.columns.get(usize::from(column))),
        _ => None,
    };
    let bound = bound.filter(|_| !matches!(inst, Inst::Const(_)));
    match (column, bound) {
        (Some(column), Some(max)) => write!(f, "  ; {:?}, <= {max:#x}", column.name),
        (Some(column), None) => write!(f, "  ; {:?}", column.name),
        (None, Some(max)) => write!(f, "  ; <= {max:#x}"),
        (None, None) => Ok(()),
    }
}

fn write_layout(f: &mut fmt::Formatter<'_>, layout: &KeyLayout) -> fmt::Result {
    writeln!(f, "layout len={} {{", layout.len())?;
    for id in layout.field_ids() {
        let (field, offset) = (layout.field(id), layout.offset(id));
        write!(f, "  {}", field.kind())?;
        if field.kind() == FieldKind::Integer {
            write!(f, ".{}", field.bytes())?;
        }
        let order = match field.byte_order() {
            ByteOrder::Big => "big",
            ByteOrder::Little => "little",
        };
        writeln!(f, " {:?} at {offset} {order}", field.name())?;
    }
    writeln!(f, "}}")
}

fn write_table(f: &mut fmt::Formatter<'_>, table: &Table) -> fmt::Result {
    writeln!(f, "{:?} row_bytes={} {{", table.name, table.row_bytes)?;
    for column in &table.columns {
        write!(
            f,
            "  {:?} u{} x {} at {} max={:#x}",
            column.name,
            u32::from(column.bytes) * 8,
            column.count,
            column.offset,
            column.max
        )?;
        writeln!(f, "{}", if column.is_result { " result" } else { "" })?;
    }
    writeln!(f, "  data")?;
    for row in table.data.chunks(table.row_bytes.max(1) as usize) {
        write!(f, "   ")?;
        for word in row.chunks(4) {
            write!(f, " ")?;
            word.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        }
        writeln!(f)?;
    }
    writeln!(f, "}}")
}

fn write_head(f: &mut fmt::Formatter<'_>, block: &Block) -> fmt::Result {
    write_list(f, &block.params, |f, (value, ty)| {
        write!(f, "{value}: {ty}")
    })?;
    if let Some(trips) = block.trips {
        write!(f, " trips={trips}")?;
    }
    writeln!(f, ":")
}

/// A list in parentheses, nothing where it is empty.
fn write_list<T>(
    f: &mut fmt::Formatter<'_>,
    items: &[T],
    write_one: impl Fn(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    for (i, item) in items.iter().enumerate() {
        f.write_str(if i == 0 { "(" } else { ", " })?;
        write_one(f, item)?;
    }
    f.write_str(if items.is_empty() { "" } else { ")" })
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scalar => f.write_str("scalar"),
            Self::Row(table) => write!(f, "row.{table}"),
            Self::Lanes(lanes) => write!(f, "lanes.{lanes}"),
            Self::Mask(lanes) => write!(f, "mask.{lanes}"),
            Self::Nothing => f.write_str("nothing"),
        }
    }
}

impl BinaryOp {
    /// All operations with their names in the text form.
    pub(super) const NAMES: [(Self, &'static str); 9] = [
        (Self::And, "and"),
        (Self::Or, "or"),
        (Self::Xor, "xor"),
        (Self::Add, "add"),
        (Self::Sub, "sub"),
        (Self::Mul, "mul"),
        (Self::Min, "min"),
        (Self::Max, "max"),
        (Self::Pext, "pext"),
    ];
}

impl CompareOp {
    /// All comparisons with their names in the text form.
    pub(super) const NAMES: [(Self, &'static str); 4] = [
        (Self::Eq, "eq"),
        (Self::Ne, "ne"),
        (Self::Lt, "lt"),
        (Self::Le, "le"),
    ];
}

impl LaneCompareOp {
    /// All comparisons with their names in the text form.
    pub(super) const NAMES: [(Self, &'static str); 2] =
        [(Self::Eq, "eq_lanes"), (Self::Le, "le_lanes")];
}

impl MaskOp {
    /// All operations with their names in the text form.
    pub(super) const NAMES: [(Self, &'static str); 3] = [
        (Self::And, "and_masks"),
        (Self::Or, "or_masks"),
        (Self::AndNot, "and_not_masks"),
    ];
}

/// The name of `op` in one of the tables above.
fn name_of<T: PartialEq>(names: &[(T, &'static str)], op: T) -> &'static str {
    names
        .iter()
        .find(|(known, _)| *known == op)
        .map_or("?", |(_, name)| name)
}

impl fmt::Display for Inst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Const(value) => write!(f, "const {value:#x}"),
            Self::LoadKey {
                offset,
                bytes,
                order,
            } => {
                let order = match order {
                    ByteOrder::Big => "be",
                    ByteOrder::Little => "le",
                };
                write!(f, "load_key.{order}{} {offset}", u32::from(bytes) * 8)
            }
            Self::Binary { op, a, b } => write!(f, "{} {a}, {b}", name_of(&BinaryOp::NAMES, op)),
            Self::Shl { a, by } => write!(f, "shl {a}, {by}"),
            Self::Shr { a, by } => write!(f, "shr {a}, {by}"),
            Self::Compare { op, a, b } => write!(f, "{} {a}, {b}", name_of(&CompareOp::NAMES, op)),
            Self::Select { cond, a, b } => write!(f, "select {cond}, {a}, {b}"),
            Self::FirstBit { a } => write!(f, "first_bit {a}"),
            Self::Row { table, index } => write!(f, "row {table}[{index}]"),
            Self::Load { row, column, index } => {
                write!(f, "load {row}.{column}")?;
                index.map_or(Ok(()), |index| write!(f, "[{index}]"))
            }
            Self::LoadLanes {
                row,
                column,
                first,
                lanes,
            } => write!(f, "load_lanes.{lanes} {row}.{column}[{first}]"),
            Self::LoadScratch { index } => write!(f, "load_scratch [{index}]"),
            Self::LoadScratchLanes { index, lanes } => {
                write!(f, "load_scratch_lanes.{lanes} [{index}]")
            }
            Self::OrScratch { index, bits } => write!(f, "or_scratch [{index}], {bits}"),
            Self::AndLanes { a, b } => write!(f, "and_lanes {a}, {b}"),
            Self::Splat { a, lanes } => write!(f, "splat.{lanes} {a}"),
            Self::CompareLanes { op, a, b } => {
                write!(f, "{} {a}, {b}", name_of(&LaneCompareOp::NAMES, op))
            }
            Self::InRangeLanes { x, lo, len } => write!(f, "in_range_lanes {x}, {lo}, {len}"),
            Self::InRangeHalves { x, lo, len } => write!(f, "in_range_halves {x}, {lo}, {len}"),
            Self::MaskedEqLanes { x, mask, value } => {
                write!(f, "masked_eq_lanes {x}, {mask}, {value}")
            }
            Self::CombineMasks { op, a, b } => {
                write!(f, "{} {a}, {b}", name_of(&MaskOp::NAMES, op))
            }
            Self::LaneBits { mask } => write!(f, "lane_bits {mask}"),
            Self::MaskedMin { acc, mask, x } => write!(f, "masked_min {acc}, {mask}, {x}"),
            Self::HorizontalMin { a } => write!(f, "horizontal_min {a}"),
        }
    }
}

impl fmt::Display for Terminator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = |f: &mut fmt::Formatter<'_>, to: BlockId, args: &[ValueId]| {
            write!(f, "{to}")?;
            write_list(f, args, |f, arg| write!(f, "{arg}"))
        };
        match self {
            Self::Jump { to, args } => {
                f.write_str("jump ")?;
                target(f, *to, args)
            }
            Self::BranchIf {
                cond,
                then,
                then_args,
                otherwise,
                else_args,
            } => {
                write!(f, "branch_if {cond}, ")?;
                target(f, *then, then_args)?;
                f.write_str(", ")?;
                target(f, *otherwise, else_args)
            }
            Self::Repeat {
                head,
                args,
                exit,
                exit_args,
            } => {
                f.write_str("repeat ")?;
                target(f, *head, args)?;
                f.write_str(", ")?;
                target(f, *exit, exit_args)
            }
            Self::Return { value } => write!(f, "return {value}"),
        }
    }
}
