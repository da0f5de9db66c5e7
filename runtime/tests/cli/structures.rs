//! `docs/structures.md`: every `console` block in it is what its command prints.
//!
//! `PKTJIT_BLESS=1 cargo test -p pktjit --test cli structures` writes the blocks anew. What is written around them then
//! has to be read again: a trace by hand names numbers of the tables.

use std::path::Path;

use super::*;

/// The page with the blocks as they have to be, and how many there are.
fn printed(page: &str, run: impl Fn(&str) -> String) -> (String, usize) {
    let mut printed = String::new();
    let mut blocks = 0;
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        printed.push_str(line);
        printed.push('\n');
        if line != "```console" {
            continue;
        }
        blocks += 1;
        let command = lines.next().unwrap_or_default();
        let output = run(command.strip_prefix("$ ").expect(command));
        printed.push_str(&format!("{command}\n{}\n```\n", output.trim_end()));
        lines.find(|line| *line == "```").expect("the block ends");
    }
    (printed, blocks)
}

#[test]
fn the_structures_are_shown_as_they_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let tools = Path::new(PKTJIT).parent().unwrap();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::iter::once(tools.to_owned()).chain(std::env::split_paths(&path));
    let path = std::env::join_paths(paths).unwrap();
    let run = |command: &str| {
        let output = Command::new("sh")
            .args(["-c", command])
            .current_dir(&root)
            .env("PATH", &path)
            .env_remove("PKTJIT_ENGINE")
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(stderr, "", "{command}");
        String::from_utf8(output.stdout).unwrap()
    };

    let file = root.join("docs/structures.md");
    let page = std::fs::read_to_string(&file).unwrap();
    let (printed, blocks) = printed(&page, run);
    if std::env::var_os("PKTJIT_BLESS").is_some() {
        std::fs::write(&file, &printed).unwrap();
        return;
    }
    for structure in pktjit::Structure::ALL {
        let name = format!("`{structure}`");
        let mut headings = page.lines().filter(|line| line.starts_with("## "));
        let is_shown = headings.any(|heading| heading.contains(&name));
        assert!(is_shown, "docs/structures.md has no section on {structure}");
    }
    assert!(blocks > 20, "docs/structures.md has {blocks} blocks");
    let difference = page
        .lines()
        .zip(printed.lines())
        .find(|(is, shall)| is != shall);
    assert!(
        page == printed,
        "docs/structures.md is stale, first at {difference:?}\n\
         PKTJIT_BLESS=1 cargo test -p pktjit --test cli structures"
    );
}
