//! The tools as scripts call them: their output, their messages and their exit codes.
#![cfg(feature = "cli")]

mod bench;
mod classify;
mod jitdump;
mod others;
mod refusals;
#[cfg(unix)]
mod structures;

use std::ffi::OsStr;
use std::fmt::Debug;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

const PKTJIT: &str = env!("CARGO_BIN_EXE_pktjit");
const JITDUMP: &str = env!("CARGO_BIN_EXE_jitdump");

const NFT: &str = "\
table inet filter {
  map services {
    type ipv4_addr . inet_service : verdict
    flags interval
    elements = { 192.0.2.0/24 . ssh : accept,
                 10.0.0.1-10.0.0.9 . 1024-65535 : jump high,
                 10.0.0.0-10.0.0.255 . 2000 : drop,
                 * : goto rest }
  }
  set hosts { type ipv4_addr; elements = { 10.0.0.1, 10.0.0.2 } }
  chain input { type filter hook input priority 0; }
}
";

/// The first rule covers the third.
const ACL: &str = "\
@10.0.0.0/8 0.0.0.0/0 0 : 65535 80 : 80 0x06/0xFF
@0.0.0.0/0 192.0.2.0/24 1024 : 65535 0 : 65535 0x11/0xFF
@10.1.0.0/16 0.0.0.0/0 0 : 65535 80 : 80 0x06/0xFF
";

/// A file that goes away with the value.
struct File(PathBuf);

impl File {
    fn new(content: impl AsRef<[u8]>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("pktjit-cli-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, content).unwrap();
        Self(path)
    }

    fn name(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn run(tool: &str, args: &[impl AsRef<OsStr>]) -> Output {
    Command::new(tool)
        .args(args)
        .env_remove("PKTJIT_ENGINE")
        .output()
        .unwrap()
}

/// The stdout of a call that must succeed.
fn stdout(tool: &str, args: &[impl AsRef<OsStr> + Debug]) -> String {
    let output = run(tool, args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {stderr}");
    assert_eq!(stderr, "", "{args:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The message of a call that must fail: exit 1, one error, nothing on stdout.
fn error(tool: &str, args: &[impl AsRef<OsStr> + Debug]) -> String {
    let output = run(tool, args);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{args:?}: {stderr}");
    assert_eq!(output.stdout, b"", "{args:?}");
    assert_eq!(stderr.matches("error: ").count(), 1, "{args:?}: {stderr}");
    let message = stderr.strip_prefix("error: ").unwrap();
    message.trim_end().into()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Whether machine code runs here; everything else must work anywhere.
fn has_avx2() -> bool {
    pktjit::Cpu::host().avx2.is_ok()
}
