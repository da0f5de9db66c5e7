//! How long it takes from a rule set to code that can be called, and which part of it is what.
//!
//! Times are of the clock on the wall, as a caller sees them; rules are parsed already. A result's `ns` is one whole build,
//! and its `build_ms` the same. `pktjit-plan`, `pktjit-codegen` and `pktjit-publish` are parts of `pktjit`. Before anything is
//! timed, the answers of what was built are compared with the expected ones, for which results say `hits` and `single`.
//! The generic pipapo builds the same tables for words and for vectors.

use std::error::Error;
use std::time::{Duration, Instant};

use pktjit::Stats;

use crate::measure::{Mode, estimates};
use crate::peer::{Pipapo, SafeCall};
use crate::suite::{Contender, Done, Place, Settings, builders, calls, compile_all, hash};
use crate::workload::{Row, Set, Traffic};

/// Keys whose answers are checked: few, since it takes the linear scan to know them.
const CHECKED: usize = 2048;

/// Most rules of which the generic pipapo is built: of more, with wide ranges, its tables take gigabytes.
const MOST_PIPAPO_RULES: u32 = 100_000;

/// Fewest builds that a median is taken of.
const LEAST_ROUNDS: usize = 3;

/// A part of a whole build, by its name in results.
type Part = (&'static str, fn(&Stats) -> Duration);

const PARTS: [Part; 3] = [
    ("pktjit-plan", |stats| stats.plan_time),
    ("pktjit-codegen", |stats| stats.compile_time),
    ("pktjit-publish", |stats| stats.publish_time),
];

/// Runs the suite for one row.
///
/// # Errors
/// A wrong answer, or an engine or a structure that cannot serve.
pub fn run(row: &Row, settings: &Settings, done: Done<'_>) -> Result<(), Box<dyn Error>> {
    let set = Set::new(row)?;
    let compiled = compile_all(&set.rules, settings)?;
    let mut contenders = calls(&compiled);
    contenders.extend(peers(row, &set));
    for traffic in Traffic::ALL {
        let sent = set.send(traffic, CHECKED);
        set.check(&sent.ranges)?;
        for contender in &mut contenders {
            contender.check(contender.peer.keys(&sent))?;
        }
    }
    drop(contenders);

    // Everything was built once already: what is timed finds allocator and caches warm.
    let mut samples: Vec<Vec<f64>> = Vec::new();
    let start = Instant::now();
    let enough = settings.effort.sample_ns * settings.effort.rounds as f64;
    for round in 0..settings.effort.rounds {
        if round >= LEAST_ROUNDS && nanoseconds(start.elapsed()) > enough {
            break;
        }
        let mut turn = Vec::new();
        for (_, builder) in builders(settings) {
            let start = Instant::now();
            let classifier = builder.compile(&set.rules)?;
            turn.push(nanoseconds(start.elapsed()));
            let stats = classifier.stats();
            turn.extend(PARTS.map(|(_, part)| nanoseconds(part(&stats))));
        }
        turn.extend(peers(row, &set).map(|peer| peer.build_ms() * 1e6));
        samples.resize(turn.len(), Vec::new());
        for (samples, time) in samples.iter_mut().zip(turn) {
            samples.push(time);
        }
    }

    // In the order of a turn.
    let mut timed: Vec<(&str, Contender<'_>)> = Vec::new();
    for compiled in &compiled {
        let parts = PARTS.map(|(part, _)| part);
        for what in ["pktjit"].into_iter().chain(parts) {
            let call = SafeCall(&compiled.classifier);
            timed.push((what, Contender::compiled(compiled, call)));
        }
    }
    timed.extend(peers(row, &set).map(|peer| (peer.peer.name(), peer)));
    let place = Place {
        suite: settings.suite,
        row: row.name,
        rules: row.rules,
        traffic: Traffic::Hits.name(),
        mode: Mode::Single,
    };
    for ((what, contender), estimate) in timed.iter().zip(estimates(&samples)) {
        let mut record = contender.record(&place, estimate);
        record.what = (*what).into();
        record.build_ms = estimate.ns / 1e6;
        done(record);
    }
    Ok(())
}

/// The peers, each built anew: those that know all fields.
fn peers<'a>(row: &Row, set: &Set) -> impl Iterator<Item = Contender<'a>> {
    let pipapo = || Contender::build(|| Pipapo::new(&set.rules));
    let pipapo = (row.rules <= MOST_PIPAPO_RULES).then(pipapo);
    pipapo
        .into_iter()
        .chain(hash(set).into_iter().flatten().take(1))
}

fn nanoseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9
}
