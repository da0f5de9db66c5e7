//! `pktjit classify` prints the `.expected` files of `testdata/corpus`, byte for byte.
#![cfg(feature = "cli")]

use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn classify_prints_the_expected_lines_of_the_corpus() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/corpus");
    let mut files = 0;
    for entry in fs::read_dir(corpus).unwrap() {
        let keys = entry.unwrap().path();
        if keys.extension().is_none_or(|suffix| suffix != "keys") {
            continue;
        }
        let rules = ["nft", "rules"].map(|suffix| keys.with_extension(suffix));
        let rules = rules.into_iter().find(|path| path.exists()).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_pktjit"))
            .args([
                "classify".as_ref(),
                rules.as_os_str(),
                "--keys".as_ref(),
                keys.as_os_str(),
            ])
            .output()
            .unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {message}", rules.display());
        let expected = fs::read(keys.with_extension("expected")).unwrap();
        assert!(
            output.stdout == expected,
            "{} prints other lines",
            rules.display()
        );
        files += 1;
    }
    assert!(files >= 100, "{files} files");
}
