//! Bochs, an emulator of whole machines that has AVX-512 (Debian: `bochs`, `bochs-term`, `bochsbios`).

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::disk::{CAPACITY, Case, disk};

/// What a disk may take: it takes seconds.
const TIMEOUT: Duration = Duration::from_secs(600);

const MACHINE: &str = "
cpu: model=corei7_skylake_x, ips=50000000, reset_on_triple_fault=0
megs: 32
romimage: file=/usr/share/bochs/BIOS-bochs-legacy
vgaromimage: file=/usr/share/bochs/VGABIOS-lgpl-latest
ata0-master: type=disk, path=disk.img, mode=flat, cylinders=0
boot: disk
port_e9_hack: enabled=1
display_library: term
sound: driver=dummy
log: log.txt
panic: action=fatal
error: action=ignore
info: action=ignore
";

/// Whether there is one here.
///
/// # Errors
/// Why not.
pub(super) fn find() -> Result<(), String> {
    let help = Command::new("bochs").arg("--help").output();
    match help {
        Ok(_) if Path::new("/usr/share/bochs/BIOS-bochs-legacy").exists() => Ok(()),
        Ok(_) => Err("no BIOS for bochs".into()),
        Err(error) => Err(format!("no bochs: {error}")),
    }
}

/// Runs all cases, as many at a time as a disk takes.
///
/// # Errors
/// Which of them gave wrong rows, or none at all.
pub(super) fn run(mut cases: Vec<Case>) -> Result<(), String> {
    let mut wrong = Vec::new();
    while !cases.is_empty() {
        let mut used = 0;
        let fits = cases.iter().take_while(|case| {
            used += case.bytes();
            used <= CAPACITY
        });
        let rest = cases.split_off(fits.count().max(1));
        wrong.extend(run_disk(&cases)?);
        cases = rest;
    }
    match &wrong[..] {
        [] => Ok(()),
        [first, ..] => Err(format!("{} wrong, the first is {first}", wrong.len())),
    }
}

/// What was wrong with each case for which something was.
fn run_disk(cases: &[Case]) -> Result<Vec<String>, String> {
    let unique = format!(
        "pktjit-bochs-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    );
    let folder = std::env::temp_dir().join(unique);
    let output = start(&folder, &disk(cases));
    let _ = fs::remove_dir_all(&folder);
    let output = output.map_err(|error| format!("bochs: {error}"))?;
    let counts: Vec<u32> = output
        .lines()
        .filter_map(|line| u32::from_str_radix(line.strip_prefix('@')?, 16).ok())
        .collect();
    let mut wrong = Vec::new();
    for (case, counts) in cases.iter().zip(counts.chunks(3)) {
        if counts != [0; 3] {
            let n = case.rows.len();
            wrong.push(format!("{}: {counts:?} of {n} keys", case.name));
        }
    }
    if let Some(stopped) = cases.get(counts.len() / 3) {
        wrong.push(format!("{}: the machine stopped\n{output}", stopped.name));
    }
    Ok(wrong)
}

/// What Bochs writes until it ends.
fn start(folder: &Path, disk: &[u8]) -> std::io::Result<String> {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder)?;
    fs::write(folder.join("disk.img"), disk)?;
    fs::write(folder.join("machine"), MACHINE)?;
    // Debian's Bochs waits in its debugger for the command to start.
    fs::write(folder.join("debugger"), "c\n")?;
    let text = folder.join("output.txt");
    let mut bochs = Command::new("bochs")
        .args(["-q", "-f", "machine", "-rc", "debugger"])
        .current_dir(folder)
        .env("TERM", "dumb")
        .stdin(Stdio::null())
        .stdout(File::create(&text)?)
        .stderr(Stdio::null())
        .spawn()?;
    let end = Instant::now() + TIMEOUT;
    while bochs.try_wait()?.is_none() {
        if Instant::now() > end {
            bochs.kill()?;
            bochs.wait()?;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(String::from_utf8_lossy(&fs::read(text)?).into_owned())
}
