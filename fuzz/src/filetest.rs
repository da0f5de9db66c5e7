//! Filetests: programs as text, together with what is expected of them.
//!
//! `testdata/filetests/verify` holds what the verifier says, `testdata/filetests/run` what lookups return. A file is a
//! sequence of tests, each of which starts with its name:
//!
//! ```text
//! ; test: a shift by more than 63
//! ; error: a shift by 64            (verify: part of one fault; faults and errors pair off, none is left over)
//! ; run: 0a000001 -> 3              (run: key in hexadecimal, row or `miss`; on every engine)
//! layout len=4 { ...
//! ```
//!
//! An engine joins by one closure in the list that [`check_lookups`] gets.

use std::fs;
use std::path::{Path, PathBuf};

use pktjit_ir::{KeyRef, MISS, VerifiedProgram, text, verify};

/// One test of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Test {
    /// The file, the line and the name, for messages.
    pub name: String,
    /// Parts of the faults that the verifier must report.
    pub errors: Vec<String>,
    /// What lookups must return.
    pub lookups: Vec<Lookup>,
    /// The program.
    pub program: String,
}

/// One lookup of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// The bytes of the key.
    pub key: Vec<u8>,
    /// The row, or [`MISS`].
    pub row: u32,
}

/// A program ready to be looked up in by one engine.
pub type Compiled = Box<dyn Fn(KeyRef<'_>) -> u32>;

/// A name, and what makes a program ready or says why the engine cannot run it.
pub type Engine<'a> = (
    &'a str,
    &'a dyn Fn(VerifiedProgram) -> Result<Compiled, String>,
);

/// The tests of one folder of `testdata/filetests`, in the order of their names.
///
/// # Errors
/// Where a file cannot be read or does not follow the format above, or where there is no test.
pub fn read_folder(folder: &str) -> Result<Vec<Test>, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/filetests");
    let folder = root.join(folder);
    let entries = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .map_err(|e| format!("{}: {e}", folder.display()))?;
    paths.sort();
    let mut tests = Vec::new();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let text = fs::read_to_string(&path).map_err(|e| format!("{name}: {e}"))?;
        tests.extend(read_file(&name, &text)?);
    }
    if tests.is_empty() {
        return Err(format!("{}: no test", folder.display()));
    }
    Ok(tests)
}

/// The tests of one file.
///
/// # Errors
/// Where it does not follow the format above.
pub fn read_file(name: &str, text: &str) -> Result<Vec<Test>, String> {
    let mut tests: Vec<Test> = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let at = || format!("{name}:{}", i + 1);
        if let Some(title) = line.strip_prefix("; test: ") {
            tests.push(Test {
                name: format!("{}: {title}", at()),
                errors: Vec::new(),
                lookups: Vec::new(),
                program: String::new(),
            });
            continue;
        }
        let Some(test) = tests.last_mut() else {
            if line.is_empty() || line.starts_with(';') {
                continue;
            }
            return Err(format!("{}: text before the first `; test:`", at()));
        };
        if let Some(error) = line.strip_prefix("; error: ") {
            test.errors.push(error.to_owned());
        } else if let Some(lookup) = line.strip_prefix("; run: ") {
            let lookup = read_lookup(lookup).ok_or_else(|| format!("{}: `{lookup}`", at()))?;
            test.lookups.push(lookup);
        }
        test.program.push_str(line);
        test.program.push('\n');
    }
    Ok(tests)
}

/// `0a00 0001 -> 3`
fn read_lookup(text: &str) -> Option<Lookup> {
    let (key, row) = text.split_once("->")?;
    let digits: Vec<u32> = key
        .chars()
        .filter(|c| *c != ' ')
        .map(|c| c.to_digit(16))
        .collect::<Option<_>>()?;
    let row = match row.trim() {
        "miss" => MISS,
        row => row.parse().ok()?,
    };
    let pairs = digits.chunks_exact(2);
    let is_whole = pairs.remainder().is_empty();
    is_whole.then(|| Lookup {
        key: pairs.map(|pair| (pair[0] << 4 | pair[1]) as u8).collect(),
        row,
    })
}

/// Checks that the faults of the program are those that the test lists, all of them.
///
/// # Errors
/// What differs.
pub fn check_faults(test: &Test) -> Result<(), String> {
    let program = text::parse(&test.program).map_err(|e| format!("{}: {e}", test.name))?;
    let mut faults: Vec<String> = match verify(program) {
        Ok(_) => Vec::new(),
        Err(error) => error.faults().iter().map(ToString::to_string).collect(),
    };
    let mut missing = Vec::new();
    for error in &test.errors {
        match faults.iter().position(|fault| fault.contains(error)) {
            Some(found) => drop(faults.remove(found)),
            None => missing.push(error),
        }
    }
    if missing.is_empty() && faults.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{}:\n  not reported: {missing:?}\n  not expected: {faults:?}",
        test.name
    ))
}

/// Checks that each engine returns what the test says; returns which engines cannot run it, and why.
///
/// # Errors
/// What differs, or that the test checks nothing.
pub fn check_lookups(test: &Test, engines: &[Engine<'_>]) -> Result<Vec<String>, String> {
    let program = text::parse(&test.program).map_err(|e| format!("{}: {e}", test.name))?;
    let program = verify(program).map_err(|e| format!("{}: {e}", test.name))?;
    if test.lookups.is_empty() || engines.is_empty() {
        return Err(format!("{}: no lookup or no engine", test.name));
    }
    let (mut wrong, mut skipped) = (String::new(), Vec::new());
    for (engine, compile) in engines {
        let lookup = match compile(program.clone()) {
            Ok(lookup) => lookup,
            Err(reason) => {
                skipped.push(format!("{}: {engine}: {reason}", test.name));
                continue;
            }
        };
        for Lookup { key: bytes, row } in &test.lookups {
            let key = program.program().layout.key(bytes);
            let key = key.map_err(|e| format!("{}: {e}", test.name))?;
            let found = lookup(key);
            if found != *row {
                wrong += &format!("\n  {engine}: {bytes:02x?} -> {found}, not {row}");
            }
        }
    }
    if wrong.is_empty() {
        Ok(skipped)
    } else {
        Err(format!("{}:{wrong}", test.name))
    }
}
