//! Prioritised lists: pktjit beside `rte_acl` and a tuple space search, with traffic kind and unkind; and what generated
//! lists look like beside the given ones.
//!
//! A result's traffic is one of [`lists::Traffic`](crate::workload::lists::Traffic). All answers of all contenders are
//! compared before anything is measured, single ones and those of batches. What they are compared with is the tuple space
//! search; a plain loop over the rules confirms its answers for all keys of a list of 10k rules, for one in four at 100k and
//! one in 31 at a million; and the traces of the given sets bring their own answers.

use std::error::Error;
use std::fmt::Write as _;
use std::io::{self, Write as _};

use pktjit_fuzz::r#gen::lists::{Distance, Seed, list};

use crate::measure::Mode;
use crate::peer::TupleSpace;
#[cfg(feature = "dpdk")]
use crate::peer::{Acl, pages};
use crate::suite::{Contender, Done, Place, Settings, calls, compile_all, take_turns};
use crate::workload::Row;
use crate::workload::lists::{List, Traffic, given};

/// Most rules of which `rte_acl` is built: of 100k it took 20 to 140 s and up to 890 MB (2026-11-30, a busy Zen 4).
#[cfg(feature = "dpdk")]
const MOST_ACL_RULES: usize = 100_000;

/// Runs the suite for one row; where that is a given set which is not there, nothing.
///
/// # Errors
/// A wrong answer, or an engine or a structure that cannot serve.
pub fn run(row: &Row, settings: &Settings, done: Done<'_>) -> Result<(), Box<dyn Error>> {
    let Some(mut list) = List::new(row)? else {
        let _ = writeln!(
            io::stderr(),
            "{}: skipped: there is no ../shared/data/classbench",
            row.name
        );
        return Ok(());
    };
    let compiled = compile_all(&list.rules, settings)?;
    let mut contenders = calls(&compiled);
    contenders.extend(peers(&list));
    for traffic in Traffic::ALL {
        let Some(keys) = list.send(traffic, settings.keys) else {
            continue;
        };
        list.check(&keys)?;
        for contender in &mut contenders {
            contender.check(&keys)?;
        }
        for mode in Mode::ALL {
            let place = Place {
                suite: settings.suite,
                row: row.name,
                rules: row.rules,
                traffic: traffic.name(),
                mode,
            };
            take_turns(&mut contenders, &place, |_| &keys, settings.effort, done);
        }
    }
    Ok(())
}

/// Those who know prioritised lists. `rte_acl` is left out where it cannot hold this one, which is told on stderr.
#[must_use]
pub fn peers<'a>(list: &List) -> Vec<Contender<'a>> {
    let tuples = Contender::build(|| TupleSpace::new(&list.intervals));
    std::iter::once(tuples).chain(acl(list)).collect()
}

#[cfg(feature = "dpdk")]
fn acl<'a>(list: &List) -> Vec<Contender<'a>> {
    if list.intervals.len() > MOST_ACL_RULES {
        let _ = writeln!(io::stderr(), "rte_acl is left out of so many rules");
        return Vec::new();
    }
    match Acl::build(&list.intervals) {
        Ok(acl) => {
            let pages = pages().unwrap_or_default();
            let _ = writeln!(io::stderr(), "The tables of rte_acl lie on {pages}.");
            let build_ms = acl.build_ms();
            let calls = acl.algorithms().into_iter();
            calls.map(|call| Contender::built(call, build_ms)).collect()
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "{error}");
            Vec::new()
        }
    }
}

#[cfg(not(feature = "dpdk"))]
fn acl<'a>(_: &List) -> Vec<Contender<'a>> {
    Vec::new()
}

/// The given sets that seeds were learned from, and the seeds.
fn seeds() -> [(&'static str, Seed); 3] {
    [
        ("acl1", Seed::acl1()),
        ("fw1", Seed::fw1()),
        ("ipc1", Seed::ipc1()),
    ]
}

/// A table of how far generated lists are from what they were made to look like, and the given ones of other sizes from it.
///
/// # Errors
/// A given set that is wrong.
pub fn statistics() -> Result<String, Box<dyn Error>> {
    let mut text = String::new();
    for (name, seed) in seeds() {
        let mut columns: Vec<(String, Vec<Distance>)> = Vec::new();
        for size in ["1k", "10k", "100k"] {
            if let Some(set) = given(&format!("{name}_{size}"))? {
                columns.push((
                    format!("given {size}"),
                    seed.distances(&Seed::learn(&set.rules)),
                ));
            }
        }
        for (size, count) in [("100k", 100_000), ("500k", 500_000), ("1M", 1_000_000)] {
            let made = Seed::learn(&list(&seed, count));
            columns.push((format!("made, {size}"), seed.distances(&made)));
        }
        let names: Vec<&str> = columns.iter().map(|(name, _)| &**name).collect();
        let _ = writeln!(text, "| {name} | {} | limit |", names.join(" | "));
        let _ = writeln!(text, "| --- |{} --- |", " --- |".repeat(columns.len()));
        for line in 0..columns[0].1.len() {
            let Distance { what, limit, .. } = columns[0].1[line];
            let _ = write!(text, "| {what} |");
            for (_, distances) in &columns {
                let _ = write!(text, " {:.3} |", distances[line].distance);
            }
            let _ = writeln!(text, " {limit} |");
        }
        text.push('\n');
    }
    Ok(text)
}

/// The seed of a given set: what is in the files of the generator.
///
/// # Errors
/// A set that is wrong, or not there.
pub fn learn(name: &str) -> Result<Seed, Box<dyn Error>> {
    let set = given(name)?.ok_or("there is no ../shared/data/classbench")?;
    Ok(Seed::learn(&set.rules))
}
