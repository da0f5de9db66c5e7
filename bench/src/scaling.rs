//! One thread and two, each beside a loop that only computes: what the machine gives, and what lookups take of it.
//!
//! Times are of the clock on the wall, from when all threads start until the last is done, a lookup of one thread: where two
//! threads have a core each, nothing changes from one to two; where they share one, everything doubles, the pure loop as well.

use std::error::Error;
use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use pktjit::RuleSet;

use crate::measure::{Loop, Mode, count, estimates};
use crate::peer::{Peer, Pipapo, RawCall, SafeCall};
use crate::suite::{Contender, Done, Place, Settings, compile_all};
use crate::workload::lists::{self, List};
use crate::workload::{Keys, Row, Set, Traffic};

const THREADS: [usize; 2] = [1, 2];

/// Makes a contender for a thread of its own.
type Make<'a> = Box<dyn Fn() -> Contender<'a> + Sync + 'a>;

/// Runs the suite for one row.
///
/// # Errors
/// A wrong answer, or an engine or a structure that cannot serve.
pub fn run(row: &Row, settings: &Settings, done: Done<'_>) -> Result<(), Box<dyn Error>> {
    if row.is_list() {
        let Some(mut list) = List::new(row)? else {
            return Ok(());
        };
        let traffic = lists::Traffic::Uniform;
        let keys = list.send(traffic, settings.keys).unwrap_or_default();
        list.check(&keys)?;
        return measure(
            row,
            &list.rules,
            traffic.name(),
            &keys,
            None,
            settings,
            done,
        );
    }
    let set = Set::new(row)?;
    let keys = set.send(Traffic::Hits, settings.keys).ranges;
    set.check(&keys)?;
    let scalar = Pipapo::new(&set.rules);
    let pipapo = scalar.avx2().unwrap_or(scalar);
    let traffic = Traffic::Hits.name();
    measure(
        row,
        &set.rules,
        traffic,
        &keys,
        Some(pipapo),
        settings,
        done,
    )
}

/// Measures pktjit, a loop that only computes, and `pipapo` between them.
fn measure(
    row: &Row,
    rules: &RuleSet,
    traffic: &'static str,
    keys: &Keys,
    pipapo: Option<Pipapo>,
    settings: &Settings,
    done: Done<'_>,
) -> Result<(), Box<dyn Error>> {
    let compiled = compile_all(rules, settings)?;
    let mut makes: Vec<Make<'_>> = Vec::new();
    for compiled in &compiled {
        makes.push(Box::new(move || match RawCall::new(&compiled.classifier) {
            Some(call) => Contender::compiled(compiled, call),
            None => Contender::compiled(compiled, SafeCall(&compiled.classifier)),
        }));
    }
    if let Some(pipapo) = pipapo {
        makes.push(Box::new(move || Contender::build(|| pipapo.clone())));
    }
    makes.push(Box::new(|| Contender::build(|| Spin(1))));

    let mut ways = Vec::new();
    for make in &makes {
        let mut contender = make();
        contender.check(keys)?;
        let lookups = count(
            &mut contender.peer.timed_loop(Mode::Single, keys),
            settings.effort,
        );
        // Much longer than it takes to start a thread.
        ways.extend(THREADS.map(|threads| (make, threads, lookups * 10)));
    }
    let mut samples = vec![Vec::new(); ways.len()];
    for _ in 0..settings.effort.rounds {
        for ((make, threads, lookups), samples) in ways.iter().zip(&mut samples) {
            samples.push(time(make, *threads, *lookups, keys));
        }
    }
    let place = Place {
        suite: settings.suite,
        row: row.name,
        rules: row.rules,
        traffic,
        mode: Mode::Single,
    };
    for ((make, threads, _), estimate) in ways.iter().zip(estimates(&samples)) {
        let mut record = make().record(&place, estimate);
        record.what = format!("{}-{threads}", record.what);
        done(record);
    }
    Ok(())
}

/// Nanoseconds a lookup, until the last of the threads is done.
fn time(make: &Make<'_>, threads: usize, lookups: usize, keys: &Keys) -> f64 {
    let barrier = Barrier::new(threads);
    let one = || {
        let mut contender = make();
        let mut way: Loop<'_> = contender.peer.timed_loop(Mode::Single, keys);
        black_box(way(keys.len()));
        barrier.wait();
        let start = Instant::now();
        black_box(way(lookups));
        (start, Instant::now())
    };
    let times: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        let times = threads.into_iter().filter_map(|thread| thread.join().ok());
        times.collect()
    });
    let start = times.iter().map(|&(start, _)| start).min();
    let end = times.iter().map(|&(_, end)| end).max();
    match (start, end) {
        (Some(start), Some(end)) => (end - start).as_nanos() as f64 / lookups as f64,
        _ => f64::NAN,
    }
}

/// Eight steps of a chain of multiplications for each key, and no memory but the key's place in the loop.
struct Spin(u64);

impl Peer for Spin {
    fn name(&self) -> &'static str {
        "spin"
    }

    #[inline]
    fn lookup(&mut self, _key: &[u8]) -> u32 {
        for _ in 0..8 {
            self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        }
        self.0 as u32
    }

    fn bytes(&self) -> usize {
        0
    }

    fn is_checked(&self) -> bool {
        false
    }
}
