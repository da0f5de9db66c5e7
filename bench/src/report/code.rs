//! What one lookup takes in the code of each target, counted and not timed: the same table on every machine.
//!
//! All targets get the same structure of the same rules, each with the program that the planner makes for it, so that what
//! differs is instruction selection, and the lanes and bit gathering that the target has.

use std::error::Error;
use std::fmt::Write as _;

use pktjit::{RuleSet, Structure};
use pktjit_ir::VerifiedProgram;
use pktjit_ir::plan::{Choice, Machine, Options, Pext, plan};
use pktjit_jit::{Isa, LookupStats, Target, compile, lookup_stats};

use crate::workload::lists::List;
use crate::workload::{ROWS, Row, Set, rows};

/// A target, and what calls it.
type Named = (&'static str, Target);

const AVX2: Named = ("avx2", Target::x86_64_avx2());
const NEON: Named = ("neon", Target::aarch64_neon());

/// Those whose instructions are counted.
const TARGETS: [Named; 5] = [
    AVX2,
    NEON,
    ("avx512", Target::x86_64_avx512()),
    ("cranelift x86-64", Target::cranelift(Isa::X86_64)),
    ("cranelift aarch64", Target::cranelift(Isa::AArch64)),
];

/// The kernel's rows and a list.
fn counted_rows() -> Vec<Row> {
    let list = rows::CLASSBENCH
        .iter()
        .find(|row| row.name == "acl1_gen")
        .map(|row| row.with_rules(1000));
    ROWS.into_iter().chain(list).collect()
}

/// The section of the page: a table of `instructions / loads / dependent-load depth`, and what NEON has to do with.
///
/// # Errors
/// Where a row cannot be made.
pub(crate) fn section() -> Result<String, Box<dyn Error>> {
    let mut text = String::from(include_str!("code.md"));
    let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    let _ = writeln!(
        text,
        "\n| row | structure | {} | neon to avx2 | same program |\n| --- | --- |{}",
        names.join(" | "),
        " --- |".repeat(TARGETS.len() + 2)
    );
    for row in counted_rows() {
        let rules = rules(&row)?;
        for structure in Structure::ALL {
            if let Some(line) = line(&rules, structure) {
                let _ = writeln!(
                    text,
                    "| {}:{} | {structure} | {line} |",
                    row.name, row.rules
                );
            }
        }
    }
    Ok(text)
}

fn rules(row: &Row) -> Result<RuleSet, Box<dyn Error>> {
    if !row.is_list() {
        return Ok(Set::new(row)?.rules);
    }
    let list = List::new(row)?.ok_or_else(|| format!("{} is not there", row.name))?;
    Ok(list.rules)
}

/// The cells of a row's structure; `None` where it does not hold the rules.
fn line(rules: &RuleSet, structure: Structure) -> Option<String> {
    let own = |target: &Target| stats(&program(rules, structure, target)?, target);
    let for_neon = program(rules, structure, &NEON.1)?;
    let (avx2, neon) = (own(&AVX2.1)?, stats(&for_neon, &NEON.1)?);
    let same_program = stats(&for_neon, &AVX2.1)?;
    let mut line = String::new();
    for (_, target) in TARGETS {
        let LookupStats {
            instructions,
            loads,
            dependent_load_depth,
        } = own(&target)?;
        let _ = write!(line, "{instructions} / {loads} / {dependent_load_depth} | ");
    }
    let ratio = |to: &LookupStats| neon.instructions as f64 / to.instructions as f64;
    let (of_each, of_one) = (emphasised(ratio(&avx2)), emphasised(ratio(&same_program)));
    let _ = write!(line, "{of_each} | {of_one}");
    Some(line)
}

/// A ratio, in bold type where it is above two.
fn emphasised(ratio: f64) -> String {
    if ratio > 2.0 {
        format!("**{ratio:.2}**")
    } else {
        format!("{ratio:.2}")
    }
}

/// The program that the planner makes for a target; `None` where the structure does not hold the rules.
fn program(rules: &RuleSet, structure: Structure, target: &Target) -> Option<VerifiedProgram> {
    let options = Options {
        structure: Choice::Only(structure),
        machine: Machine {
            lanes: target.lanes(),
            pext: if target.features.fast_pext {
                Pext::Fast
            } else {
                Pext::Slow
            },
            ..Machine::default()
        },
        ..Options::default()
    };
    let plan = plan(rules, &options).ok()?;
    Some(plan.into_parts().0)
}

/// What a lookup takes; `None` where the target has too few registers for the program.
fn stats(program: &VerifiedProgram, target: &Target) -> Option<LookupStats> {
    lookup_stats(&compile(program, target).ok()?, program)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Per lookup of the same program; what each target's own program comes to is in the table.
    #[test]
    fn neon_takes_at_most_twice_the_instructions_of_avx2_for_the_same_program() {
        let mut counted = 0;
        for row in counted_rows() {
            let rules = rules(&row).unwrap();
            for structure in Structure::ALL {
                let Some(program) = program(&rules, structure, &NEON.1) else {
                    continue;
                };
                let [avx2, neon] = [AVX2, NEON].map(|(_, target)| stats(&program, &target));
                if let (Some(avx2), Some(neon)) = (avx2, neon) {
                    let (avx2, neon) = (avx2.instructions, neon.instructions);
                    assert!(
                        neon <= 2 * avx2,
                        "{} {structure}: {neon} to {avx2}",
                        row.name
                    );
                    counted += 1;
                }
            }
        }
        assert!(counted >= 60, "{counted}");
    }

    #[test]
    fn what_is_above_two_stands_out() {
        assert_eq!([2.0, 2.71].map(emphasised), ["2.00", "**2.71**"]);
    }
}
