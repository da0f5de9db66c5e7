//! One set, map or rule list as a file holds it, and the rule set that it makes.
//!
//! Elements stay in the order of the file: the position of an element is the id of its rule, in every overlap policy. Each
//! element remembers its text and its place, so that what a rule set refuses can be shown to the file's author.

use std::fmt;
use std::sync::Arc;

use pktjit_ir::{Field, KeyLayout, Note, Overlap, Rule, RuleId, RuleSet, RuleSetError};

use super::error::{FormatError, FormatNote, Location, quote};
use super::types::ValueType;

/// What a list of elements is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SetKind {
    /// An nft `set`.
    Set,
    /// An nft `map` to data.
    Map,
    /// An nft `map` to verdicts.
    VerdictMap,
    /// The rules of a ClassBench file.
    ClassBench,
}

/// The flags of an nft set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SetFlags {
    /// Elements may be ranges and prefixes.
    pub interval: bool,
    /// Elements that touch or overlap become one.
    pub auto_merge: bool,
    /// Elements cannot change while the set is in use.
    pub constant: bool,
    /// Elements may have timeouts.
    pub timeout: bool,
    /// Rules may add elements.
    pub dynamic: bool,
}

/// A place in one of the files of a rule file, small enough to keep for each element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) file: u32,
    pub(super) line: u32,
    pub(super) column: u32,
}

/// The names of the files that were read, which the places refer to.
pub(super) type FileNames = Arc<[Arc<str>]>;

impl Place {
    pub(super) fn location(self, files: &[Arc<str>]) -> Location {
        Location {
            file: Arc::clone(&files[self.file as usize]),
            line: self.line,
            column: self.column,
        }
    }
}

/// One element of a set, or one rule line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    pub(super) place: Place,
    pub(super) text: Box<str>,
    pub(super) value: Option<Box<str>>,
    /// Came by `create element`, which a repeat makes an error.
    pub(super) is_created: bool,
    pub(super) rule: Rule,
}

impl Element {
    /// The element as the file writes it, without its options; variables are replaced, white space is one blank.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The verdict or value as the file writes it; `match` where the element has none.
    #[must_use]
    pub fn verdict_text(&self) -> &str {
        self.value.as_deref().unwrap_or("match")
    }

    /// The line, counted from 1.
    #[must_use]
    pub fn line(&self) -> u32 {
        self.place.line
    }

    /// The byte in the line, counted from 1.
    #[must_use]
    pub fn column(&self) -> u32 {
        self.place.column
    }

    /// The rule.
    #[must_use]
    pub fn rule(&self) -> &Rule {
        &self.rule
    }
}

/// A set or map of an nft file, or the rule list of a ClassBench file.
///
/// Displayed as `--set` and messages name it: `inet filter blocklist`.
#[derive(Clone, Debug)]
pub struct SourceSet {
    pub(super) kind: SetKind,
    pub(super) family: &'static str,
    pub(super) table: Box<str>,
    pub(super) name: Box<str>,
    pub(super) place: Place,
    pub(super) types: Vec<ValueType>,
    pub(super) layout: KeyLayout,
    pub(super) flags: SetFlags,
    pub(super) size: Option<u32>,
    pub(super) elements: Vec<Element>,
    pub(super) files: FileNames,
}

impl SourceSet {
    /// What it is.
    #[must_use]
    pub fn kind(&self) -> SetKind {
        self.kind
    }

    /// The family of its table, such as `inet`; empty for ClassBench.
    #[must_use]
    pub fn family(&self) -> &str {
        self.family
    }

    /// The name of its table; empty for ClassBench.
    #[must_use]
    pub fn table(&self) -> &str {
        &self.table
    }

    /// Its name; empty for ClassBench.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it is declared.
    #[must_use]
    pub fn location(&self) -> Location {
        self.place.location(&self.files)
    }

    /// The fields of a key.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        self.layout.fields()
    }

    /// The fields one after the other without gaps: the layout that ClassBench keys have here.
    #[must_use]
    pub fn packed_layout(&self) -> &KeyLayout {
        &self.layout
    }

    /// The flags; none for ClassBench.
    #[must_use]
    pub fn flags(&self) -> SetFlags {
        self.flags
    }

    /// The elements in the order of the file, repeats and `*` included; an element's position is the id of its rule.
    #[must_use]
    pub fn elements(&self) -> &[Element] {
        &self.elements
    }

    /// The element that a rule came from; `None` for ids of another set.
    #[must_use]
    pub fn element(&self, id: RuleId) -> Option<&Element> {
        self.elements.get(id.index())
    }

    /// Where an element of this set stands.
    #[must_use]
    pub fn element_location(&self, element: &Element) -> Location {
        element.place.location(&self.files)
    }

    /// The overlap policy that the file asks for: `First` for ClassBench, `Merge` for `auto-merge`, else `Strict`.
    #[must_use]
    pub fn default_overlap(&self) -> Overlap {
        match self.kind {
            SetKind::ClassBench => Overlap::First,
            _ if self.flags.auto_merge => Overlap::Merge,
            _ => Overlap::Strict,
        }
    }

    /// The rules of this set, for keys that `layout` describes; `overlap` overrules the file's own policy.
    ///
    /// The layout has the [`fields`](Self::fields) of this set, at whatever offsets.
    ///
    /// # Errors
    /// Elements that the overlap policy refuses, more elements than the set's `size`, a repeated `create element`: the
    /// error names the element, its place, and what it clashes with.
    ///
    /// ```
    /// use pktjit::formats::RuleFile;
    /// let text = b"table ip t {\n set s {\n  type ipv4_addr; flags interval\n  elements = { 192.168.0.0/24,\n   192.168.0.1 }\n }\n}\n";
    /// let file = RuleFile::parse("rules.nft", text).unwrap();
    /// let set = file.set(None).unwrap();
    /// let error = set.rule_set(set.packed_layout().clone(), None).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "rules.nft:5:4: `192.168.0.1` overlaps `192.168.0.0/24` at rules.nft:4:16"
    /// );
    /// ```
    pub fn rule_set(
        &self,
        layout: KeyLayout,
        overlap: Option<Overlap>,
    ) -> Result<RuleSet, FormatError> {
        let overlap = overlap.unwrap_or(self.default_overlap());
        let mut builder = RuleSet::builder(layout).overlap(overlap);
        for element in &self.elements {
            builder.push(element.rule.clone());
        }
        let rules = builder
            .build()
            .map_err(|error| self.explain_refusal(&error))?;
        // Where all rules are kept, repeats are not told from elements and neither limit has a meaning.
        if overlap != Overlap::First {
            self.check_created(&rules)?;
            self.check_size(&rules)?;
        }
        Ok(rules)
    }

    /// `create element` promises that the element is new.
    fn check_created(&self, rules: &RuleSet) -> Result<(), FormatError> {
        for note in rules.notes() {
            if let Note::Repeated { rule, earlier } = *note
                && self.element(rule).is_some_and(|element| element.is_created)
            {
                return Err(self.clash(rule, "exists already:", earlier, ""));
            }
        }
        Ok(())
    }

    /// The size limits elements, whatever a structure makes of them; `*` does not count, as in nft.
    fn check_size(&self, rules: &RuleSet) -> Result<(), FormatError> {
        let Some(size) = self.size else {
            return Ok(());
        };
        let counted = rules
            .rules()
            .iter()
            .filter(|stored| !is_catch_all(&stored.rule));
        let mut ids: Vec<RuleId> = counted.map(|stored| stored.id).collect();
        ids.sort_unstable();
        match ids.get(size as usize) {
            None => Ok(()),
            Some(&first_too_many) => Err(FormatError::new(
                self.rule_location(first_too_many),
                format!(
                    "{} does not fit: set {} has `size {size}` and {} elements",
                    self.quoted(first_too_many),
                    quote(self.name.as_bytes()),
                    ids.len(),
                ),
            )),
        }
    }

    /// What was changed or left out when `rules` was made of this set.
    pub fn notes<'a>(&'a self, rules: &'a RuleSet) -> impl Iterator<Item = FormatNote> + 'a {
        rules.notes().iter().filter_map(|note| {
            let message = match *note {
                Note::HostBits(rule) => {
                    format!(
                        "{}: bits outside the prefix or mask are cleared",
                        self.quoted(rule)
                    )
                }
                Note::Repeated { rule, earlier } => format!(
                    "{} repeats {} at {}",
                    self.quoted(rule),
                    self.quoted(earlier),
                    self.rule_location(earlier)
                ),
                Note::Merged { rule, into } => format!(
                    "{} is merged into {} at {}",
                    self.quoted(rule),
                    self.quoted(into),
                    self.rule_location(into)
                ),
                _ => return None,
            };
            Some(FormatNote::new(self.rule_location(note.rule()), message))
        })
    }

    fn explain_refusal(&self, error: &RuleSetError) -> FormatError {
        let about = |rule: RuleId, what: String| {
            let message = format!("{}: {what}", self.quoted(rule));
            FormatError::new(self.rule_location(rule), message)
        };
        match *error {
            RuleSetError::Overlap { rule, earlier } => self.clash(rule, "overlaps", earlier, ""),
            RuleSetError::Conflict { rule, earlier } => {
                self.clash(rule, "has the key of", earlier, " and another verdict")
            }
            RuleSetError::FieldCount {
                rule,
                expected,
                actual,
            } => about(rule, format!("{actual} fields, the key has {expected}")),
            RuleSetError::Match {
                rule,
                ref name,
                ref error,
                ..
            } => about(rule, format!("field `{name}`: {error}")),
            RuleSetError::DataTooLong { rule, bytes, max } => about(
                rule,
                format!("{bytes} bytes of data; at most {max} are possible"),
            ),
            ref other => FormatError::new(self.location(), other.to_string()),
        }
    }

    fn clash(&self, rule: RuleId, does: &str, earlier: RuleId, how: &str) -> FormatError {
        let message = format!(
            "{} {does} {} at {}{how}",
            self.quoted(rule),
            self.quoted(earlier),
            self.rule_location(earlier)
        );
        FormatError::new(self.rule_location(rule), message)
    }

    /// The text of a rule's element as messages quote it, with its value.
    fn quoted(&self, id: RuleId) -> String {
        self.element(id).map_or_else(
            || id.to_string(),
            |element| match &element.value {
                None => quote(element.text.as_bytes()),
                Some(value) => quote(format!("{} : {value}", element.text).as_bytes()),
            },
        )
    }

    fn rule_location(&self, id: RuleId) -> Location {
        self.element(id)
            .map_or(self.location(), |element| self.element_location(element))
    }
}

impl fmt::Display for SourceSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            SetKind::ClassBench => f.write_str("ClassBench rules"),
            _ => write!(f, "{} {} {}", self.family, self.table, self.name),
        }
    }
}

fn is_catch_all(rule: &Rule) -> bool {
    // Only `*` has this priority: readers give every other element priority 0.
    rule.priority == i32::MIN
}
