//! `pktjit engines`: what this machine offers, what not and why.

use std::fmt::Write as _;

use clap::Args;
use serde::Serialize;

use super::{Format, Json, Output};
use crate::{Classifier, Cpu, EngineKind, Field, KeyLayout, RuleSet, Structure};

/// What this machine offers, what not and why
#[derive(Args)]
#[command(after_help = "Example: PKTJIT_ENGINE=interp pktjit engines")]
pub(super) struct Engines {
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: Format,
}

#[derive(Serialize)]
struct Report {
    /// What is taken where no engine is asked for.
    auto: &'static str,
    engines: Vec<Engine>,
    structures: Vec<&'static str>,
    cpu: Vec<&'static str>,
    caches: Caches,
}

#[derive(Serialize)]
struct Engine {
    engine: &'static str,
    works: bool,
    why: String,
}

#[derive(Serialize)]
struct Caches {
    l1d: usize,
    l2: usize,
    l3: usize,
}

impl Engines {
    pub(super) fn run(&self) -> Output {
        // An engine that compiles the smallest rule set has all that it needs, executable memory included.
        let rules = RuleSet::builder(KeyLayout::packed([Field::inet_service("dport")])?).build()?;
        let mut engines = Vec::new();
        for kind in EngineKind::ALL {
            let attempt = Classifier::builder().engine(kind).compile(&rules);
            engines.push(Engine {
                engine: kind.name(),
                works: attempt.is_ok(),
                why: attempt
                    .err()
                    .map_or_else(|| about(kind).into(), |error| error.to_string()),
            });
        }
        let cpu = Cpu::host();
        let report = Report {
            auto: Classifier::compile(&rules)?.engine().name(),
            engines,
            structures: Structure::ALL.map(Structure::name).into(),
            cpu: features(cpu),
            caches: Caches {
                l1d: cpu.caches.l1d,
                l2: cpu.caches.l2,
                l3: cpu.caches.l3,
            },
        };
        Ok(match self.format {
            Format::Json => format!("{}\n", Json(report)),
            Format::Text => report.text(),
        })
    }
}

fn about(kind: EngineKind) -> &'static str {
    match kind {
        EngineKind::Avx512 => "machine code with 512-bit vectors and mask registers",
        EngineKind::Avx2 => "machine code with 256-bit vectors",
        EngineKind::Neon => "machine code with 128-bit vectors",
        EngineKind::Cranelift => "machine code that Cranelift makes, with 128-bit vectors",
        EngineKind::Interp => "interpreter of the same program, on any machine",
        EngineKind::Linear => "one rule after the other, on any machine",
    }
}

fn features(cpu: &Cpu) -> Vec<&'static str> {
    let features = cpu.features;
    let all = [
        (cpu.avx512_target().is_ok(), "avx512"),
        (cpu.avx2.is_ok(), "avx2"),
        (cpu.neon.is_ok(), "neon"),
        (features.avx, "avx"),
        (features.sse41, "sse4.1"),
        (features.ssse3, "ssse3"),
        (features.bmi1, "bmi1"),
        (features.bmi2, "bmi2"),
        (features.movbe, "movbe"),
        (features.popcnt, "popcnt"),
        (features.fast_pext, "fast-pext"),
    ];
    all.into_iter()
        .filter(|(is_there, _)| *is_there)
        .map(|(_, name)| name)
        .collect()
}

impl Report {
    fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        for Engine { engine, works, why } in &self.engines {
            let works = if *works { "yes" } else { "no" };
            let _ = writeln!(text, "{engine:<10} {works:<4} {why}");
        }
        let Caches { l1d, l2, l3 } = self.caches;
        let kib = |bytes: usize| format!("{} KiB", bytes >> 10);
        let _ = writeln!(text, "\nauto       {}", self.auto);
        let _ = writeln!(text, "structures {}", self.structures.join(", "));
        let _ = writeln!(text, "cpu        {}", self.cpu.join(", "));
        let _ = writeln!(
            text,
            "caches     {} L1 data, {} L2, {} L3",
            kib(l1d),
            kib(l2),
            kib(l3)
        );
        text
    }
}
