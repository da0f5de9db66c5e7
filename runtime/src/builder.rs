//! From a rule set to a classifier: the choice of the engine, and the steps to it.
//!
//! Engines are tried in order, the best first. Whatever speaks against one - the CPU, a policy against executable memory,
//! a budget - is a reason to take the next, and can be read in [`Classifier::why`]. Faults of this library are errors at
//! once: they shall not hide behind a slower engine.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pktjit_fallback::{Interpreter, LinearScan};
use pktjit_ir::plan::{Choice, Effort, Machine, Options, Pext, Plan, PlanError, plan};
use pktjit_ir::{RuleSet, Structure};
use pktjit_jit::audit::{audit, has_auditor};
use pktjit_jit::{Caches, Features, compile, gains_from_avx512};

use crate::classifier::{Classifier, Inner};
use crate::code_memory::{CodeMemory, OsMemory};
use crate::cpu::{self, Cpu};
use crate::engine::{Engine, EngineKind};
use crate::entry::{LoadError, NativeCode};
use crate::error::BuildError;
use crate::stats::Stats;

/// Settings of a classifier.
///
/// ```
/// use pktjit::{Classifier, EngineKind, Field, KeyLayout, RuleSet};
/// let layout = KeyLayout::packed([Field::inet_service("dport")])?;
/// let rules = RuleSet::builder(layout).build()?;
/// let classifier = Classifier::builder().engine(EngineKind::Interp).compile(&rules)?;
/// assert_eq!(classifier.engine(), EngineKind::Interp);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ClassifierBuilder {
    engine: Option<EngineKind>,
    structure: Option<Structure>,
    effort: Effort,
    table_budget: usize,
    code_budget: usize,
    max_vector_bits: u16,
    audit: Option<bool>,
    memory: Arc<dyn CodeMemory>,
    cpu: Cpu,
}

impl Default for ClassifierBuilder {
    fn default() -> Self {
        Self {
            engine: None,
            structure: None,
            effort: Effort::Balanced,
            table_budget: 1 << 30,
            code_budget: 64 << 20,
            max_vector_bits: 512,
            audit: None,
            memory: OsMemory::shared(),
            cpu: *Cpu::host(),
        }
    }
}

impl ClassifierBuilder {
    /// Takes this engine or none. Unless set, it is the best that works here.
    #[must_use]
    pub fn engine(mut self, engine: EngineKind) -> Self {
        self.engine = Some(engine);
        self
    }

    /// Takes this structure or none. Unless set, the planner chooses.
    #[must_use]
    pub fn structure(mut self, structure: Structure) -> Self {
        self.structure = Some(structure);
        self
    }

    /// How hard the planner looks for a better plan.
    #[must_use]
    pub fn effort(mut self, effort: Effort) -> Self {
        self.effort = effort;
        self
    }

    /// Most bytes of tables; 1 GiB unless set.
    #[must_use]
    pub fn table_budget(mut self, bytes: usize) -> Self {
        self.table_budget = bytes;
        self
    }

    /// Most bytes of code with the pool behind it; 64 MiB unless set.
    #[must_use]
    pub fn code_budget(mut self, bytes: usize) -> Self {
        self.code_budget = bytes;
        self
    }

    /// Width of the widest vector registers that machine code may use, 256 or 512; 512 unless set.
    ///
    /// What is no such width counts as the next narrower one, and 256 is the least: at 256 the engine
    /// [`Avx512`](EngineKind::Avx512) still has its mask registers. At 512 plans take such registers only where the estimate
    /// says that they gain.
    #[must_use]
    pub fn max_vector_bits(mut self, bits: u16) -> Self {
        self.max_vector_bits = bits;
        self
    }

    /// Whether the finished code is proved harmless before it is first called; unless set, that is done in debug builds where
    /// there is an auditor for the machine. An engine whose code has to be proved and cannot be is not taken.
    #[must_use]
    pub fn audit(mut self, audit: bool) -> Self {
        self.audit = Some(audit);
        self
    }

    /// Where code and tables are put; memory of the operating system unless set.
    #[must_use]
    pub fn memory(mut self, memory: Arc<dyn CodeMemory>) -> Self {
        self.memory = memory;
        self
    }

    /// Pretends to be on another machine; code for more than the real one has is still refused.
    #[doc(hidden)]
    #[must_use]
    pub fn cpu(mut self, cpu: Cpu) -> Self {
        self.cpu = cpu;
        self
    }

    /// Compiles `rules`.
    ///
    /// # Errors
    /// Where an engine or a structure was asked for by name and cannot serve, or this library is at fault.
    pub fn compile(&self, rules: &RuleSet) -> Result<Classifier, BuildError> {
        let mut build = Build::new(self, rules);
        let named = self.engine.or_else(|| build.preferred());
        let mut kind = named.unwrap_or(EngineKind::ALL[0]);
        let mut engine = build.engine(kind, named);
        for next in kind.order_from().skip(1) {
            match &engine {
                Err(error) if self.allows_another_engine(error) => build.note(error),
                _ => break,
            }
            kind = next;
            engine = build.engine(kind, named);
        }
        Ok(build.finish(kind, engine?))
    }

    fn allows_another_engine(&self, error: &BuildError) -> bool {
        match error {
            BuildError::Engine { .. } => self.engine.is_none(),
            BuildError::Plan(PlanError::Refused(_)) => {
                self.engine.is_none() && self.structure.is_none()
            }
            _ => false,
        }
    }

    fn options(&self, lanes: u8) -> Options {
        let Cpu {
            features, caches, ..
        } = self.cpu;
        Options {
            structure: self.structure.map_or(Choice::Auto, Choice::Only),
            effort: self.effort,
            machine: machine(features, caches, lanes),
            table_budget: self.table_budget,
        }
    }
}

/// What the planner has to know of a machine.
pub(crate) fn machine(features: Features, caches: Caches, lanes: u8) -> Machine {
    Machine {
        lanes,
        pext: if features.fast_pext {
            Pext::Fast
        } else {
            Pext::Slow
        },
        l1d: caches.l1d,
        l2: caches.l2,
        l3: caches.l3,
    }
}

/// One compilation, with what it has found out so far.
struct Build<'a> {
    settings: &'a ClassifierBuilder,
    rules: &'a RuleSet,
    /// Made for the first engine that wants one, and again where the next one cannot take it.
    plan: Option<Result<Plan, PlanError>>,
    why: String,
    stats: Stats,
}

impl<'a> Build<'a> {
    fn new(settings: &'a ClassifierBuilder, rules: &'a RuleSet) -> Self {
        Self {
            settings,
            rules,
            plan: None,
            why: String::new(),
            stats: Stats {
                rules: rules.len(),
                live_rules: rules.len(),
                ..Stats::default()
            },
        }
    }

    /// Where the search starts if the caller asked for no engine.
    fn preferred(&mut self) -> Option<EngineKind> {
        match cpu::engine_override().map(|name| (name, name.parse::<EngineKind>())) {
            None | Some(("auto", _)) => None,
            Some((name, Ok(kind))) => {
                self.note(format_args!("PKTJIT_ENGINE={name} goes first"));
                Some(kind)
            }
            Some((name, Err(error))) => {
                self.note(format_args!("PKTJIT_ENGINE={name} is ignored: {error}"));
                None
            }
        }
    }

    fn note(&mut self, line: impl std::fmt::Display) {
        let _ = writeln!(self.why, "{line}");
    }

    /// A plan that asks for no more than so many lanes.
    fn plan(&mut self, lanes: u8) -> Result<&Plan, BuildError> {
        let (settings, rules, stats) = (self.settings, self.rules, &mut self.stats);
        if matches!(&self.plan, Some(Ok(plan)) if plan.decision().lanes() > lanes) {
            self.plan = None;
        }
        let options = settings.options(lanes);
        self.plan
            .get_or_insert_with(|| timed(&mut stats.plan_time, || plan(rules, &options)))
            .as_ref()
            .map_err(|error| error.clone().into())
    }

    /// The engine `kind`; `named` is the one that was asked for, by the caller or by `PKTJIT_ENGINE`.
    fn engine(
        &mut self,
        kind: EngineKind,
        named: Option<EngineKind>,
    ) -> Result<Engine, BuildError> {
        let refused = |reason: String| BuildError::Engine {
            engine: kind,
            reason,
        };
        kind.check(&self.settings.cpu)
            .map_err(|reason| refused(reason.into()))?;
        match kind {
            EngineKind::Avx512 | EngineKind::Avx2 | EngineKind::Neon | EngineKind::Cranelift => {
                self.native(kind, named == Some(kind), refused)
                    .map(Engine::Native)
            }
            EngineKind::Interp => {
                // It takes vectors of any width; with these it runs what `avx2` would.
                let program = self.plan(8)?.program().clone();
                self.stats.table_bytes = table_bytes(&program);
                Ok(Engine::Interp(Interpreter::new(program)))
            }
            EngineKind::Linear => match self.settings.structure {
                None | Some(Structure::Linear) => Ok(Engine::Linear(LinearScan::new(self.rules))),
                Some(other) => Err(refused(format!("it has no structure `{other}`"))),
            },
        }
    }

    fn native(
        &mut self,
        kind: EngineKind,
        is_named: bool,
        refused: impl Fn(String) -> BuildError,
    ) -> Result<NativeCode, BuildError> {
        let settings = self.settings;
        let target = match kind {
            EngineKind::Avx512 => settings.cpu.avx512_target(),
            EngineKind::Cranelift => settings.cpu.cranelift_target(),
            _ => settings.cpu.target(),
        };
        let mut target = target.map_err(|reason| refused(reason.into()))?;
        target.max_vector_bits = target.max_vector_bits.min(settings.max_vector_bits);
        let plan = self.plan(target.lanes())?;
        let program = plan.program().clone();
        if kind == EngineKind::Avx512 && !is_named && !gains_from_avx512(&program) {
            return Err(refused("the program gains nothing from it".into()));
        }
        let mut stats = self.stats;
        let code =
            timed(&mut stats.compile_time, || compile(&program, &target)).map_err(|error| {
                if error.is_unsupported() {
                    refused(error.to_string())
                } else {
                    BuildError::Compile(error)
                }
            })?;
        let len = code.bytes().len();
        if len > settings.code_budget {
            let budget = settings.code_budget;
            return Err(refused(format!(
                "{len} bytes of code, the budget is {budget}"
            )));
        }
        let can_audit = has_auditor(&target);
        if settings.audit == Some(true) && !can_audit {
            return Err(refused("there is no auditor for its code".into()));
        }
        if settings
            .audit
            .unwrap_or(cfg!(debug_assertions) && can_audit)
        {
            timed(&mut stats.audit_time, || {
                audit(&code, &program, code.profile())
            })?;
        }
        let native = timed(&mut stats.publish_time, || {
            NativeCode::load(&code, &*settings.memory)
        })
        .map_err(|error: LoadError| refused(error.to_string()))?;
        self.stats = Stats {
            code_bytes: code.pool_offset(),
            pool_bytes: len - code.pool_offset(),
            table_bytes: table_bytes(&program),
            huge_page_bytes: native.huge_page_bytes(),
            stack_bytes: code.stack_bytes(),
            instructions: code.listing().len(),
            ..stats
        };
        Ok(native)
    }

    fn finish(mut self, kind: EngineKind, engine: Engine) -> Classifier {
        self.note(format_args!("engine     {kind}"));
        let structure = match (kind, self.plan.take()) {
            (EngineKind::Linear, _) => Structure::Linear,
            (_, Some(Ok(plan))) => {
                let decision = plan.decision();
                self.note(decision.to_string().trim_end());
                self.stats.live_rules = decision.live_rules();
                decision.structure()
            }
            _ => Structure::Linear,
        };
        let rows = self.rules.rules().iter();
        Classifier::new(Inner {
            engine,
            layout: self.rules.layout().clone(),
            rows: rows
                .map(|stored| (stored.id, stored.rule.verdict.clone()))
                .collect(),
            kind,
            structure,
            why: self.why,
            stats: self.stats,
        })
    }
}

fn table_bytes(program: &pktjit_ir::VerifiedProgram) -> usize {
    let tables = program.program().tables.iter();
    tables.map(|table| table.data.len()).sum()
}

/// Runs `step` and adds the time that it takes to `total`.
fn timed<T>(total: &mut Duration, step: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = step();
    *total += start.elapsed();
    result
}
