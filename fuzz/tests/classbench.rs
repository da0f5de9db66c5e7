//! The nine ClassBench sets of `../shared/data/classbench`, which are not part of the repository: all 20,000 keys of each.

use std::path::{Path, PathBuf};

use pktjit::{Classifier, Effort, EngineKind, RuleId, Structure};
use pktjit_fuzz::oracle::{compile, configurations};
use pktjit_fuzz::trace::Trace;

/// What takes time in proportion to the rules is asked so many keys that this many rules are compared.
const MOST_COMPARISONS: usize = 20_000_000;
/// Lists of more rules are too large to be built for each variant of `pipapo` as well.
const MOST_RULES_FOR_VARIANTS: usize = 20_000;

/// Where the sets are, if they are there.
fn folder() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folder = root.join("../shared/data/classbench");
    folder.is_dir().then_some(folder)
}

fn check(name: &str) {
    let Some(folder) = folder() else {
        eprintln!("{name}: skipped: there is no ../shared/data/classbench");
        return;
    };
    let [rules, trace] =
        ["rules", "trace"].map(|suffix| folder.join(format!("{name}.{suffix}.gz")));
    let trace = Trace::read(&rules, &trace).unwrap_or_else(|error| panic!("{error}"));
    for (engine, structure) in configurations() {
        let asked = structure.map_or("auto", Structure::name);
        let is_variant = matches!(structure, Some(Structure::Pipapo4 | Structure::Pipapo8));
        if is_variant && trace.rules.len() > MOST_RULES_FOR_VARIANTS {
            eprintln!("{name}: {engine} {asked}: skipped: too many rules, see `pipapo`");
            continue;
        }
        match compile(&trace.rules, engine, structure, Effort::Balanced)
            .unwrap_or_else(|error| panic!("{name}: {error}"))
        {
            Err((_, reason)) => eprintln!("{name}: {engine} {asked}: cannot hold: {reason}"),
            Ok(classifier) => {
                let is_slow = matches!(engine, EngineKind::Interp | EngineKind::Linear)
                    && matches!(
                        classifier.structure(),
                        Structure::Linear
                            | Structure::Pipapo
                            | Structure::Pipapo4
                            | Structure::Pipapo8
                    );
                let most = if is_slow {
                    MOST_COMPARISONS / trace.rules.len()
                } else {
                    usize::MAX
                };
                let step = trace.keys.len().div_ceil(most);
                let keys = check_every(step, &classifier, &trace)
                    .unwrap_or_else(|error| panic!("{name}: {engine} {asked}: {error}"));
                let sample = if step > 1 { ", a sample" } else { "" };
                eprintln!(
                    "{name}: {engine} {asked}: {}, {keys} keys{sample}",
                    classifier.structure()
                );
            }
        }
    }
}

/// Looks up every `step`-th key, and returns how many that were.
fn check_every(step: usize, classifier: &Classifier, trace: &Trace) -> Result<usize, String> {
    let keys: Vec<u8> = trace.keys.iter().step_by(step).flatten().copied().collect();
    let expected: Vec<Option<RuleId>> = trace.expected.iter().step_by(step).copied().collect();
    let stride = classifier.layout().len();
    let mut rows = vec![0; expected.len()];
    classifier
        .lookup_batch(&keys, stride, &mut rows)
        .map_err(|error| error.to_string())?;
    for (i, (&row, &expected)) in rows.iter().zip(&expected).enumerate() {
        let key = &keys[i * stride..][..stride];
        let single = classifier.lookup_row(
            classifier
                .layout()
                .key(key)
                .map_err(|error| error.to_string())?,
        );
        let rule = classifier.hit(row).map(|hit| hit.rule);
        if rule != expected || single != row {
            return Err(format!(
                "key {key:02x?} gives {rule:?} (alone row {single}), not {expected:?}"
            ));
        }
    }
    Ok(rows.len())
}

macro_rules! sets {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })*
    };
}

sets!(acl1_1k acl1_10k acl1_100k fw1_1k fw1_10k fw1_100k ipc1_1k ipc1_10k ipc1_100k);
