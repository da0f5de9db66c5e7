//! `jitdump`: every stage between a rule set and its machine code.
//!
//! It never runs the code, so that it shows code for any target on any machine. The output depends on the rules, the
//! arguments and the version alone: it can be compared with `diff`.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use pktjit_ir::plan::{self, Choice, Decision, Estimate, Options, Plan};
use pktjit_jit::audit::{AuditReport, audit};
use pktjit_jit::{CompiledCode, Generator, Isa, LookupStats, Target, compile, lookup_stats};
use serde::Serialize;

use super::{Compiler, Format, Json, Output, Rules, asm, named, tables};
use crate::formats::SourceSet;
use crate::{EngineKind, RuleSet, builder};

/// Shows what becomes of a rule set: the plan, the IR, the machine code and its tables
///
/// Nothing is run: the output is the same on every machine.
#[derive(Parser)]
#[command(
    name = "jitdump",
    version,
    after_help = "Example: jitdump rules.nft --set services --show plan,asm"
)]
pub(super) struct Jitdump {
    #[command(flatten)]
    rules: Rules,

    /// Machine that the code is for: x86_64-avx2 (the default), x86_64-avx512 (that of engine avx512), or for Cranelift's code
    /// one of x86_64-unknown-linux-gnu (that of engine cranelift), aarch64-unknown-linux-gnu, riscv64gc-unknown-linux-gnu and
    /// s390x-unknown-linux-gnu
    #[arg(long, value_name = "TARGET")]
    target: Option<String>,

    #[command(flatten)]
    compiler: Compiler,

    /// What to show; unless given, plan,ir,asm
    #[arg(long, value_name = "SECTION", value_delimiter = ',')]
    show: Vec<Section>,

    /// Show all rows of the tables
    #[arg(long)]
    all: bool,

    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: Format,

    /// Write the code, then the pool; unless --show is given, nothing is shown
    #[arg(long, value_name = "FORM", requires = "output")]
    emit: Option<Emit>,

    /// Where --emit writes to
    #[arg(short, value_name = "FILE", requires = "emit")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Section {
    /// What the planner considered and chose
    Plan,
    /// The program
    Ir,
    /// The machine code
    Asm,
    /// The tables, with the rules that they name
    Tables,
    /// What the auditor proved
    Audit,
    /// Sizes, and what a lookup takes
    Stats,
}

impl Section {
    /// Whether only machine code has it.
    fn is_of_code(self) -> bool {
        matches!(self, Self::Asm | Self::Audit | Self::Stats)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Ir => "ir",
            Self::Asm => "asm",
            Self::Tables => "tables",
            Self::Audit => "audit",
            Self::Stats => "stats",
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Emit {
    Bin,
}

impl Jitdump {
    pub(super) fn run(&self) -> Output {
        let engine = named(self.compiler.engine.as_deref())?;
        let target = match &self.target {
            Some(name) => target(name)?,
            None => match engine {
                Some(EngineKind::Avx512) => Target::x86_64_avx512(),
                Some(EngineKind::Neon) => Target::aarch64_neon(),
                Some(EngineKind::Cranelift) => Target::cranelift(Isa::X86_64),
                _ => Target::x86_64_avx2(),
            },
        };
        let of_target = match (target.generator, target.isa) {
            (Generator::Cranelift, _) => EngineKind::Cranelift,
            (Generator::Own, Isa::AArch64) => EngineKind::Neon,
            (Generator::Own, _) if target.features.avx512 => EngineKind::Avx512,
            (Generator::Own, _) => EngineKind::Avx2,
        };
        let engine = engine.unwrap_or(of_target);
        let options = Options {
            structure: named(self.compiler.structure.as_deref())?
                .map_or(Choice::Auto, Choice::Only),
            effort: self.compiler.effort.into(),
            machine: builder::machine(target.features, target.caches, target.lanes()),
            ..Options::default()
        };
        let has_code = match engine {
            EngineKind::Linear => {
                return Err("engine `linear` has nothing to show: it asks rule after rule".into());
            }
            _ if engine.is_native() && engine != of_target => {
                return Err(format!("engine `{engine}` has no code for {target}").into());
            }
            _ => engine.is_native(),
        };
        let sections = self.sections(has_code);
        if let Some(section) = sections
            .iter()
            .find(|section| section.is_of_code() && !has_code)
        {
            return Err(format!(
                "engine `{engine}` has no {}: it runs the program as it is",
                section.name()
            )
            .into());
        }
        if self.emit.is_some() && !has_code {
            return Err(format!("engine `{engine}` has no code to write").into());
        }

        let file = self.rules.read()?;
        let set = self.rules.set(&file)?;
        let rules = self.rules.rule_set(set)?;
        let plan = plan::plan(&rules, &options)?;
        let code = has_code
            .then(|| compile(plan.program(), &target))
            .transpose()?;
        let dump = Dump {
            set,
            rules: &rules,
            plan: &plan,
            code: code.as_ref(),
            rows: if self.all { usize::MAX } else { 16 },
        };
        let shown = dump.show(&sections, self.format)?;
        if let (Some(Emit::Bin), Some(path), Some(code)) = (self.emit, &self.output, &code) {
            std::fs::write(path, code.bytes())
                .map_err(|error| format!("{}: cannot be written: {error}", path.display()))?;
        }
        Ok(shown)
    }

    /// What to show, in the order of the stages.
    fn sections(&self, has_code: bool) -> Vec<Section> {
        let mut sections = match &self.show[..] {
            [] if self.emit.is_some() => Vec::new(),
            [] if has_code => vec![Section::Plan, Section::Ir, Section::Asm],
            [] => vec![Section::Plan, Section::Ir],
            asked => asked.to_vec(),
        };
        sections.sort_unstable();
        sections.dedup();
        sections
    }
}

/// The target of this name.
fn target(name: &str) -> Result<Target, String> {
    let all = [
        Target::x86_64_avx2(),
        Target::x86_64_avx512(),
        Target::aarch64_neon(),
        Target::cranelift(Isa::X86_64),
        Target::cranelift(Isa::AArch64),
        Target::cranelift(Isa::Riscv64),
        Target::cranelift(Isa::S390x),
    ];
    let mut known = all.into_iter();
    known
        .find(|known| known.to_string() == name)
        .ok_or_else(|| {
            let known = all.map(|known| known.to_string()).join(", ");
            format!("there is no target `{name}`; there are {known}")
        })
}

/// A rule set on its way to code.
struct Dump<'a> {
    set: &'a SourceSet,
    rules: &'a RuleSet,
    plan: &'a Plan,
    code: Option<&'a CompiledCode>,
    /// Most rows of a table that are shown.
    rows: usize,
}

impl<'a> Dump<'a> {
    fn show(&self, sections: &[Section], format: Format) -> Output {
        let stages = sections
            .iter()
            .map(|&section| Ok((section.name(), self.stage(section)?)))
            .collect::<Result<Vec<_>, Box<dyn Error>>>()?;
        Ok(match (format, &stages[..]) {
            (_, []) => String::new(),
            // Scripts read the figures: they are an object by themselves.
            (Format::Json, [(_, stats @ Stage::Stats(_))]) => format!("{}\n", Json(stats)),
            (Format::Json, stages) => format!(
                "{}\n",
                Json(
                    stages
                        .iter()
                        .map(|(name, stage)| (name, stage))
                        .collect::<BTreeMap<_, _>>()
                )
            ),
            (Format::Text, [(_, only)]) => only.to_string(),
            (Format::Text, stages) => {
                let sections = stages
                    .iter()
                    .map(|(name, stage)| format!("== {name}\n{stage}"));
                sections.collect::<Vec<_>>().join("\n")
            }
        })
    }

    fn stage(&self, section: Section) -> Result<Stage<'a>, Box<dyn Error>> {
        let verified = self.plan.program();
        let program = verified.program();
        let code = || self.code.ok_or("there is no code");
        Ok(match section {
            Section::Plan => Stage::Plan(PlanView::new(self.plan.decision())),
            Section::Ir => Stage::Text(without_long_tables(&verified.to_string(), self.rows)),
            #[cfg(feature = "cranelift")]
            Section::Asm if !asm::is_read(code()?.target()) => {
                Stage::Text(pktjit_jit::cranelift_text(verified, code()?.target())?)
            }
            Section::Asm => Stage::Asm(asm::functions(code()?, program)),
            Section::Tables => Stage::Tables(tables::data(
                program, self.code, self.set, self.rules, self.rows,
            )),
            Section::Audit => {
                let code = code()?;
                Stage::Audit(AuditView::new(audit(code, verified, code.profile())?))
            }
            Section::Stats => {
                let code = code()?;
                let stats = lookup_stats(code, verified)
                    .ok_or_else(|| format!("nothing is counted of code for {}", code.target()))?;
                Stage::Stats(StatsView::new(code, stats, self.plan))
            }
        })
    }
}

/// The text of a program with at most `rows` rows of each table.
fn without_long_tables(program: &str, rows: usize) -> String {
    let mut text = String::with_capacity(program.len().min(1 << 16));
    let mut hidden = 0;
    // Only the rows of a table are indented as far.
    let mut row = 0;
    for line in program.lines() {
        row = if line.starts_with("    ") { row + 1 } else { 0 };
        if row > rows {
            hidden += 1;
            continue;
        }
        if hidden > 0 {
            text.push_str(&format!("    ; {hidden} more rows (--all shows them)\n"));
            hidden = 0;
        }
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// What one section shows.
#[derive(Serialize)]
#[serde(untagged)]
enum Stage<'a> {
    Plan(PlanView),
    Text(String),
    Asm(Vec<asm::Function>),
    Tables(tables::Data<'a>),
    Audit(AuditView),
    Stats(StatsView),
}

impl fmt::Display for Stage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan(plan) => f.write_str(&plan.text),
            Self::Text(text) => f.write_str(text),
            Self::Asm(functions) => {
                functions
                    .iter()
                    .enumerate()
                    .try_for_each(|(position, function)| {
                        if position > 0 {
                            writeln!(f)?;
                        }
                        function.fmt(f)
                    })
            }
            Self::Tables(tables) => tables.fmt(f),
            Self::Audit(audit) => writeln!(f, "{}", audit.text),
            Self::Stats(stats) => stats.fmt(f),
        }
    }
}

#[derive(Serialize)]
struct PlanView {
    rules: usize,
    live_rules: usize,
    structure: &'static str,
    candidates: Vec<Candidate>,
    #[serde(skip)]
    text: String,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Candidate {
    Possible {
        structure: &'static str,
        ns: f64,
        instructions: f64,
        dependent_loads: f64,
        lines: f64,
        table_bytes: usize,
    },
    Refused {
        structure: &'static str,
        refused: String,
    },
}

impl PlanView {
    fn new(decision: &Decision) -> Self {
        let candidate = |candidate: &plan::Candidate| {
            let structure = candidate.structure.name();
            match &candidate.estimate {
                Ok(Estimate { cost, nanoseconds }) => Candidate::Possible {
                    structure,
                    ns: *nanoseconds,
                    instructions: cost.instructions,
                    dependent_loads: cost.dependent_loads,
                    lines: cost.lines,
                    table_bytes: cost.table_bytes,
                },
                Err(refusal) => Candidate::Refused {
                    structure,
                    refused: refusal.to_string(),
                },
            }
        };
        Self {
            rules: decision.rules(),
            live_rules: decision.live_rules(),
            structure: decision.structure().name(),
            candidates: decision.candidates().iter().map(candidate).collect(),
            text: decision.to_string(),
        }
    }
}

#[derive(Serialize)]
struct AuditView {
    instructions: usize,
    blocks: usize,
    loops: usize,
    key_accesses: usize,
    pool_accesses: usize,
    table_accesses: usize,
    result_accesses: usize,
    pointer_accesses: usize,
    features: Vec<&'static str>,
    #[serde(skip)]
    text: String,
}

impl AuditView {
    fn new(report: AuditReport) -> Self {
        let text = report.to_string();
        let AuditReport {
            instructions,
            blocks,
            loops,
            accesses,
            features,
        } = report;
        Self {
            instructions,
            blocks,
            loops,
            key_accesses: accesses.key,
            pool_accesses: accesses.pool,
            table_accesses: accesses.table,
            result_accesses: accesses.result,
            pointer_accesses: accesses.pointer,
            features: features.into_iter().collect(),
            text,
        }
    }
}

#[derive(Serialize)]
struct StatsView {
    structure: &'static str,
    rules: usize,
    live_rules: usize,
    code_bytes: usize,
    pool_bytes: usize,
    table_bytes: usize,
    stack_bytes: usize,
    instructions: u64,
    loads: u64,
    dependent_load_depth: u32,
}

impl StatsView {
    fn new(code: &CompiledCode, stats: LookupStats, plan: &Plan) -> Self {
        let LookupStats {
            instructions,
            loads,
            dependent_load_depth,
        } = stats;
        let tables = &plan.program().program().tables;
        Self {
            structure: plan.structure().name(),
            rules: plan.decision().rules(),
            live_rules: plan.decision().live_rules(),
            code_bytes: code.pool_offset(),
            pool_bytes: code.bytes().len() - code.pool_offset(),
            table_bytes: tables.iter().map(|table| table.data.len()).sum(),
            stack_bytes: code.stack_bytes(),
            instructions,
            loads,
            dependent_load_depth,
        }
    }
}

impl fmt::Display for StatsView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            structure,
            rules,
            live_rules,
            ..
        } = self;
        writeln!(f, "structure     {structure}")?;
        writeln!(f, "rules         {rules} (at most {live_rules} can win)")?;
        writeln!(
            f,
            "code          {} bytes, and {} bytes of pool",
            self.code_bytes, self.pool_bytes
        )?;
        writeln!(f, "tables        {} bytes", self.table_bytes)?;
        writeln!(f, "stack         {} bytes", self.stack_bytes)?;
        writeln!(
            f,
            "a lookup      at most {} instructions, {} of which read memory",
            self.instructions, self.loads
        )?;
        writeln!(
            f,
            "longest chain {} dependent loads from tables",
            self.dependent_load_depth
        )
    }
}
