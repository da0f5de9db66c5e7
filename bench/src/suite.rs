//! Runs a suite: builds what is compared, checks every answer, measures in turns.

use std::error::Error;
use std::time::Instant;

use pktjit::{Classifier, ClassifierBuilder, EngineKind, RuleSet, Structure};

use crate::floor;
use crate::measure::{Effort, Estimate, Mode, Timed, in_turns};
use crate::peer::{
    Bisect, CalledHash, ExactHash, FieldValue, FirstFieldTree, Peer, Pipapo, RawCall, SafeCall,
};
use crate::record::Record;
use crate::workload::{Keys, Row, Set, Traffic};

/// Takes the results as they come.
pub type Done<'a> = &'a mut dyn FnMut(Record);

/// What to run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name of the suite in results.
    pub suite: &'static str,
    /// Engines to force, `None` for the best.
    pub engines: Vec<Option<EngineKind>>,
    /// Structures to force, `None` for the planner's choice.
    pub structures: Vec<Option<Structure>>,
    /// How long to measure.
    pub effort: Effort,
    /// How many keys to go over.
    pub keys: usize,
}

/// A classifier, and what it was asked to be.
pub struct Compiled {
    /// The classifier.
    pub classifier: Classifier,
    requested: &'static str,
    build_ms: f64,
}

/// Somebody who takes part.
pub struct Contender<'a> {
    /// The way to ask.
    pub peer: Box<dyn Timed + 'a>,
    compiled: Option<&'a Compiled>,
    build_ms: f64,
}

impl<'a> Contender<'a> {
    /// A peer, made by `build`, whose time is taken.
    pub fn build<P: Peer + 'a>(build: impl FnOnce() -> P) -> Self {
        let start = Instant::now();
        let peer = build();
        Self::built(peer, milliseconds(start))
    }

    /// A peer that was built before, in so many milliseconds.
    pub fn built(peer: impl Peer + 'a, build_ms: f64) -> Self {
        Self {
            peer: Box::new(peer),
            compiled: None,
            build_ms,
        }
    }

    /// A way to call `compiled`.
    pub fn compiled(compiled: &'a Compiled, peer: impl Peer + 'a) -> Self {
        Self {
            peer: Box::new(peer),
            compiled: Some(compiled),
            build_ms: compiled.build_ms,
        }
    }

    /// Milliseconds that it took to build.
    pub(crate) fn build_ms(&self) -> f64 {
        self.build_ms
    }

    /// The peer as one that belongs to `compiled`, whose structure is told with its results.
    pub fn beside(self, compiled: &'a Compiled) -> Self {
        Self {
            compiled: Some(compiled),
            ..self
        }
    }

    /// Compares all answers, of single lookups and of batches, with the expected ones.
    ///
    /// # Errors
    /// The first answer that is wrong.
    pub fn check(&mut self, keys: &Keys) -> Result<(), String> {
        if !self.peer.is_checked() {
            return Ok(());
        }
        let mut batch = vec![0; keys.len()];
        self.peer.lookup_batch(&keys.bytes, keys.stride, &mut batch);
        let all = keys.first(keys.len()).zip(&keys.expected).zip(batch);
        for (i, ((key, &expected), batch)) in all.enumerate() {
            let single = self.peer.lookup(key);
            if (single, batch) != (expected, expected) {
                let name = self.peer.name();
                return Err(format!(
                    "{name} is wrong: key {i} {key:02x?} hits {expected}; it says {single}, in a batch {batch}"
                ));
            }
        }
        Ok(())
    }

    /// The record of what was measured.
    #[must_use]
    pub fn record(&self, place: &Place, estimate: Estimate) -> Record {
        let classifier = self.compiled.map(|compiled| &compiled.classifier);
        Record {
            suite: place.suite.into(),
            row: place.row.into(),
            rules: place.rules,
            traffic: place.traffic.into(),
            what: self.peer.name().into(),
            requested: self.compiled.map(|compiled| compiled.requested.into()),
            engine: classifier.map(|classifier| classifier.engine().to_string()),
            structure: classifier.map(|classifier| classifier.structure().to_string()),
            mode: place.mode.name().into(),
            ns: estimate.ns,
            ci95: estimate.ci95,
            bytes: self.peer.bytes(),
            build_ms: self.build_ms,
        }
    }
}

/// Where in a suite a measurement belongs.
#[derive(Clone, Copy)]
pub struct Place {
    /// The name of the suite.
    pub suite: &'static str,
    /// The name of the row.
    pub row: &'static str,
    /// The nominal number of rules.
    pub rules: u32,
    /// The name of the traffic.
    pub traffic: &'static str,
    /// The mode.
    pub mode: Mode,
}

/// The settings of every way that was asked for, and the structure by the name that asked for it.
pub(crate) fn builders(
    settings: &Settings,
) -> impl Iterator<Item = (&'static str, ClassifierBuilder)> {
    settings.engines.iter().flat_map(|&engine| {
        settings.structures.iter().map(move |&structure| {
            let mut builder = Classifier::builder();
            if let Some(engine) = engine {
                builder = builder.engine(engine);
            }
            if let Some(structure) = structure {
                builder = builder.structure(structure);
            }
            (structure.map_or("auto", Structure::name), builder)
        })
    })
}

/// Compiles `rules` in every way that was asked for.
///
/// # Errors
/// Where an engine or a structure that was asked for by name cannot serve.
pub fn compile_all(rules: &RuleSet, settings: &Settings) -> Result<Vec<Compiled>, Box<dyn Error>> {
    let compile = |(requested, builder): (_, ClassifierBuilder)| {
        let start = Instant::now();
        let classifier = builder.compile(rules)?;
        Ok(Compiled {
            classifier,
            requested,
            build_ms: milliseconds(start),
        })
    };
    builders(settings).map(compile).collect()
}

/// pktjit's calls: those through bare pointers first, since all others are compared with the first.
pub fn calls(compiled: &[Compiled]) -> Vec<Contender<'_>> {
    let raw = compiled.iter().filter_map(|compiled| {
        RawCall::new(&compiled.classifier).map(|call| Contender::compiled(compiled, call))
    });
    let safe = compiled
        .iter()
        .map(|compiled| Contender::compiled(compiled, SafeCall(&compiled.classifier)));
    raw.chain(safe).collect()
}

/// The structure of Linux for concatenated ranges, with vectors first where there are any.
#[must_use]
pub fn pipapo<'a>(set: &Set) -> Vec<Contender<'a>> {
    let scalar = Contender::build(|| Pipapo::new(&set.rules));
    let mut peers = Vec::new();
    let pipapo = Pipapo::new(&set.rules);
    if let Some(avx2) = pipapo.avx2() {
        peers.push(Contender {
            peer: Box::new(avx2),
            compiled: None,
            build_ms: scalar.build_ms,
        });
    }
    peers.push(scalar);
    peers
}

/// Searches in the intervals of the first field alone: the tree, and bisection.
#[must_use]
pub fn searches<'a>(set: &Set) -> [Contender<'a>; 2] {
    fn of<'a, V: FieldValue + 'a>(rules: &RuleSet) -> [Contender<'a>; 2] {
        [
            Contender::build(|| FirstFieldTree::<V>::new(rules)),
            Contender::build(|| Bisect::<V>::new(rules)),
        ]
    }
    match set.rules.layout().fields()[0].bytes() {
        0..=4 => of::<u32>(&set.rules),
        5..=8 => of::<u64>(&set.rules),
        _ => of::<u128>(&set.rules),
    }
}

/// The map of exact keys, for keys of the lengths that rows have, in the measuring loop and behind a function pointer. Where
/// elements overlap, no key of its own stands for one.
#[must_use]
pub fn hash<'a>(set: &Set) -> Option<[Contender<'a>; 2]> {
    fn of<'a, const N: usize>(set: &Set) -> [Contender<'a>; 2] {
        [
            Contender::build(|| ExactHash::<N>::new(set.exact_keys())),
            Contender::build(|| CalledHash::<N>::new(set.exact_keys())),
        ]
    }
    match set.rules.layout().len() {
        _ if !set.is_disjoint() => None,
        4 => Some(of::<4>(set)),
        8 => Some(of::<8>(set)),
        12 => Some(of::<12>(set)),
        16 => Some(of::<16>(set)),
        20 => Some(of::<20>(set)),
        28 => Some(of::<28>(set)),
        32 => Some(of::<32>(set)),
        _ => None,
    }
}

/// The peers of the suites that compare lookups; none for another suite.
#[must_use]
pub fn peers<'a>(suite: &str, set: &Set) -> Vec<Contender<'a>> {
    let mut peers = Vec::new();
    match suite {
        "selftest" | "selftest-first" => {
            let [tree, _] = searches(set);
            peers.extend(pipapo(set));
            peers.push(tree);
            // The one that the reference machine measured.
            peers.extend(hash(set).into_iter().flatten().take(1));
        }
        "single" => peers.extend(searches(set)),
        "hash" => peers.extend(hash(set).into_iter().flatten()),
        // Of ten thousand IPv6 ranges the scalar code takes 20 us a key, and minutes to be checked.
        "shapes" => peers.extend(pipapo(set).into_iter().take(1)),
        _ => {}
    }
    peers
}

/// Runs a suite that compares lookups for one row: pktjit and the peers.
///
/// # Errors
/// A wrong answer, or an engine or a structure that cannot serve.
pub fn lookups(row: &Row, settings: &Settings, done: Done<'_>) -> Result<(), Box<dyn Error>> {
    let set = Set::new(row)?;
    let compiled = compile_all(&set.rules, settings)?;
    let mut contenders = calls(&compiled);
    contenders.extend(peers(settings.suite, &set));
    Ok(run_row(&mut contenders, &set, row, settings, done)?)
}

/// Runs `floor` for one row: each classifier beside what it must touch at least.
///
/// # Errors
/// A wrong answer, or an engine or a structure that cannot serve.
pub fn floor(row: &Row, settings: &Settings, done: Done<'_>) -> Result<(), Box<dyn Error>> {
    let set = Set::new(row)?;
    let compiled = compile_all(&set.rules, settings)?;
    let mut contenders = calls(&compiled);
    for compiled in &compiled {
        let floor = floor::contender(&set.rules, compiled.classifier.structure())?;
        contenders.push(floor.beside(compiled));
    }
    Ok(run_row(&mut contenders, &set, row, settings, done)?)
}

/// Measures `contenders` with every traffic and mode.
///
/// # Errors
/// A wrong answer.
pub fn run_row(
    contenders: &mut [Contender<'_>],
    set: &Set,
    row: &Row,
    settings: &Settings,
    done: Done<'_>,
) -> Result<(), String> {
    for traffic in Traffic::ALL {
        let sent = set.send(traffic, settings.keys);
        for keys in [&sent.ranges, &sent.exact] {
            set.check(keys)?;
        }
        for contender in &mut *contenders {
            contender.check(contender.peer.keys(&sent))?;
        }
        for mode in Mode::ALL {
            let place = Place {
                suite: settings.suite,
                row: row.name,
                rules: row.rules,
                traffic: traffic.name(),
                mode,
            };
            let keys = |peer: &dyn Timed| peer.keys(&sent);
            take_turns(contenders, &place, keys, settings.effort, done);
        }
    }
    Ok(())
}

/// Measures `contenders` in turns, each over the keys that it takes.
pub(crate) fn take_turns<'a>(
    contenders: &mut [Contender<'_>],
    place: &Place,
    keys: impl Fn(&dyn Timed) -> &'a Keys,
    effort: Effort,
    done: Done<'_>,
) {
    let mut ways: Vec<_> = contenders
        .iter_mut()
        .map(|contender| {
            let keys = keys(&*contender.peer);
            contender.peer.timed_loop(place.mode, keys)
        })
        .collect();
    let estimates = in_turns(&mut ways, effort);
    drop(ways);
    for (contender, estimate) in contenders.iter().zip(estimates) {
        done(contender.record(place, estimate));
    }
}

fn milliseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}
