//! Runs a fuzz target without libFuzzer, as under an emulator of another CPU: `unguided TARGET SECONDS [SEED]`.
//!
//! Each input is a seed of the target, or part of one, with some bytes changed; nothing tells which of them reached new
//! code. An input that panics is written to `fuzz/artifacts/TARGET`, as cargo-fuzz does it.

use std::error::Error;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};
use std::{env, fs, panic, process};

use pktjit::EngineKind;
use pktjit::cli::random::Random;
use pktjit_fuzz::oracle::is_asked;
use pktjit_fuzz::targets::{TARGETS, Target};

/// How often the time is compared and told.
const REPORT: Duration = Duration::from_secs(30);

/// A seed, or part of one, with up to 16 other bytes.
fn mutated(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut input = seeds[random.below(seeds.len() as u64) as usize].clone();
    input.truncate(random.below(input.len() as u64 + 1) as usize);
    for _ in 0..random.below(17) {
        let place = random.below(input.len() as u64) as usize;
        if let Some(byte) = input.get_mut(place) {
            *byte = random.below(256) as u8;
        }
    }
    input
}

fn run(target: &Target, time: Duration, seed: u64) -> Result<(), Box<dyn Error>> {
    let asked = EngineKind::ALL
        .into_iter()
        .filter(|&it| is_asked(it).is_ok());
    let asked: Vec<&str> = asked.map(EngineKind::name).collect();
    if asked.is_empty() {
        return Err("no engine is asked".into());
    }
    let seeds = (target.seeds)();
    let mut random = Random(seed);
    let (start, mut reported) = (Instant::now(), Duration::ZERO);
    let mut inputs = 0_u64;
    while start.elapsed() < time {
        let input = mutated(&seeds, &mut random);
        if panic::catch_unwind(|| (target.run)(&input)).is_err() {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("artifacts")
                .join(target.name);
            fs::create_dir_all(&folder)?;
            let file = folder.join(format!("unguided-{seed}-{inputs}"));
            fs::write(&file, input)?;
            return Err(format!(
                "input {inputs} of seed {seed} is a finding: {}",
                file.display()
            )
            .into());
        }
        inputs += 1;
        if start.elapsed() >= reported + REPORT {
            reported = start.elapsed();
            eprintln!("{inputs} inputs in {} s", reported.as_secs());
        }
    }
    writeln!(
        io::stdout(),
        "{}: {inputs} inputs in {} s, no finding; engines {}",
        target.name,
        start.elapsed().as_secs(),
        asked.join(", ")
    )?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let (name, seconds, seed) = match &args[..] {
        [name, seconds] => (name, seconds, "1"),
        [name, seconds, seed] => (name, seconds, seed.as_str()),
        _ => {
            eprintln!("usage: unguided TARGET SECONDS [SEED]");
            process::exit(2);
        }
    };
    let target = TARGETS.into_iter().find(|target| target.name == name);
    let target = target.ok_or_else(|| format!("no target `{name}`"))?;
    run(
        &target,
        Duration::from_secs(seconds.parse()?),
        seed.parse()?,
    )
}
