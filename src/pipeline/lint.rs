//! Linting what is served: all of it on request, once a version; the added and changed cards with every change.
//!
//! Owns: which cards a change's report looks at and with which others, the bounds of both, when all is looked at unasked.
//! Does not know: the rules ([`crate::registry::lint`]) and how close two cards are ([`Catalog::overlaps`]).

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::task::{JoinError, spawn_blocking};

use super::Router;
use crate::catalog::{BuildError, Catalog, Overlaps, Readers};
use crate::registry::lint::{Finding, Language, Overlap, Severity, lint};
use crate::registry::{self, Diff, Registry};
use crate::retrieve;
use crate::telemetry::names;
use crate::text;
use crate::tool::ToolCard;
use crate::types::ToolId;

/// Most findings in the report about a change.
const MOST_FINDINGS: usize = 200;
/// Most cards of one change that its report looks at: it must not keep who waits for it waiting.
const MOST_CARDS: usize = 200;
/// Up to so many cards all of them are looked at for the report about a change.
const ALL_UP_TO: usize = 128;
/// Most other cards that one changed card is looked at with.
const COMPANY: usize = 64;
/// Up to so many cards all of them are looked at after each change; more are when `Lint` asks.
const UNASKED_UP_TO: usize = 2_000;

/// What is wrong with a set of cards.
#[derive(Debug, Clone)]
pub struct Linted {
    pub catalog_version: String,
    /// The cards that were looked at.
    pub registry: Arc<Registry>,
    pub overlaps: Arc<Vec<Overlap>>,
    /// False where no encoder is loaded: then nobody knows which cards say the same.
    pub overlaps_measured: bool,
    /// As [`lint`] orders them.
    pub findings: Arc<Vec<Finding>>,
}

impl Linted {
    /// What was not looked at.
    pub fn notices(&self) -> Vec<String> {
        let unmeasured = "which cards say the same was not measured by meaning, only their words were compared: no encoder is loaded";
        if self.overlaps_measured { Vec::new() } else { vec![unmeasured.to_owned()] }
    }
}

/// Which cards a caller may hear of.
pub type View = Box<dyn Fn(&ToolCard) -> bool + Send>;

/// The last result. Whoever computes holds the lock, so one thread works at a time.
#[derive(Default)]
pub(super) struct Lints(Arc<Mutex<Option<Kept>>>);

struct Kept {
    /// The cards it was computed for: the version stays when the cards do, and a catalog that gets its graph holds the
    /// same registry.
    registry: Arc<Registry>,
    overlaps: Arc<Vec<Overlap>>,
    english: Option<Arc<Vec<Finding>>>,
    chinese: Option<Arc<Vec<Finding>>>,
}

impl Kept {
    fn findings(&mut self, language: Language) -> &Arc<Vec<Finding>> {
        let place = match language {
            Language::English => &mut self.english,
            Language::Chinese => &mut self.chinese,
        };
        place.get_or_insert_with(|| {
            let findings = lint(&self.registry, &self.overlaps, language);
            tell(&findings);
            Arc::new(findings)
        })
    }
}

/// What the report about a change says.
#[derive(Debug, Default)]
pub(super) struct Review {
    pub findings: Vec<Finding>,
    pub notices: Vec<String>,
}

impl Router {
    /// Lints the catalog being served; with a `view` only the cards it lets through, each as if the others were not
    /// there. Computed once a version, on a thread that may block, one at a time; it goes on when the caller leaves.
    ///
    /// # Errors
    /// [`JoinError`] when the thread was interrupted.
    pub async fn lint(&self, language: Language, view: Option<View>) -> Result<Linted, JoinError> {
        let mut kept = Arc::clone(&self.lints.0).lock_owned().await;
        let (catalog, readers) = (Arc::clone(&self.catalogs.load().catalog), self.readers());
        spawn_blocking(move || {
            if kept.as_ref().is_none_or(|kept| !Arc::ptr_eq(&kept.registry, &catalog.registry)) {
                let overlaps = catalog.overlaps(&readers).map(|overlaps| overlaps.all());
                let overlaps = Arc::new(overlaps.unwrap_or_default());
                let registry = Arc::clone(&catalog.registry);
                *kept = Some(Kept { registry, overlaps, english: None, chinese: None });
            }
            let kept = kept.as_mut().expect("it was just put there");
            let whole = Linted {
                catalog_version: catalog.version.to_string(),
                registry: Arc::clone(&catalog.registry),
                overlaps: Arc::clone(&kept.overlaps),
                overlaps_measured: !catalog.dense.is_empty(),
                findings: Arc::default(),
            };
            match view {
                None => Linted { findings: Arc::clone(kept.findings(language)), ..whole },
                Some(view) => within(whole, &view, language),
            }
        })
        .await
    }

    /// Looks at everything that is served behind the requests, for the log and the metrics. Large catalogs wait until
    /// somebody asks.
    pub fn lint_unasked(self: &Arc<Self>) {
        if self.catalogs.load().catalog.tools.len() > UNASKED_UP_TO {
            return;
        }
        let router = Arc::clone(self);
        tokio::spawn(async move {
            if let Err(error) = router.lint(Language::English, None).await {
                tracing::error!(%error, "linting was interrupted");
            }
        });
    }

    /// What is wrong with the cards that a change added or changed. Rules about the whole set see each of them with the
    /// cards close to it, those it names and those named like it; [`Router::lint`] sees all.
    pub(super) async fn lint_change(&self, catalog: &Arc<Catalog>, diff: &Diff) -> Review {
        let mut changed: Vec<ToolId> = diff.added.iter().chain(&diff.changed).cloned().collect();
        changed.sort();
        let (catalog, readers) = (Arc::clone(catalog), self.readers());
        spawn_blocking(move || review(&catalog, &changed, &readers)).await.unwrap_or_else(|error| {
            tracing::error!(%error, "linting a change was interrupted");
            Review { findings: Vec::new(), notices: vec!["the changed cards could not be linted".into()] }
        })
    }

    /// Which encoder measures how close two cards are; names nobody has where none is loaded.
    fn readers(&self) -> Readers {
        let name = |language| self.encoders.for_language(language).map(|encoder| encoder.name().to_owned());
        let [chinese, other] = [text::Language::Zh, text::Language::En].map(|of| name(of).unwrap_or_default());
        Readers { chinese, other }
    }

    /// The catalog of other cards with the same encoders, served to nobody: to see what a change would bring.
    ///
    /// # Errors
    /// [`BuildError`].
    pub async fn catalog_of(&self, registry: Registry) -> Result<Catalog, BuildError> {
        let (catalog, _) = self.catalogs.builder().build(registry, 0, &|_, _| {}).await?;
        Ok(catalog)
    }

    /// How requests are ranked here.
    pub fn ranking(&self) -> &retrieve::Settings {
        &self.settings.retrieve
    }
}

/// How many findings of each severity there are: errors, warnings, notes.
pub fn counts(findings: &[Finding]) -> [usize; 3] {
    let of = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    [of(Severity::Error), of(Severity::Warning), of(Severity::Note)]
}

/// `error`, `warning` or `note`.
pub fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    }
}

fn tell(findings: &[Finding]) {
    let [errors, warnings, notes] = counts(findings);
    for (severity, count) in [("error", errors), ("warning", warnings), ("note", notes)] {
        metrics::gauge!(names::LINT_FINDINGS, "severity" => severity).set(count as f64);
    }
    tracing::info!(errors, warnings, notes, "cards linted; `Lint` and `pointsman lint` say what");
}

/// The part of `whole` that `view` lets through. Whose a quarantined card is that cannot be read, nobody knows.
fn within(whole: Linted, view: &View, language: Language) -> Linted {
    let seen: BTreeSet<&ToolId> =
        whole.registry.cards.iter().filter(|(_, card)| view(card)).map(|(id, _)| id).collect();
    let mut part = part_of(&whole.registry, |id| seen.contains(id));
    part.quarantined.clear();
    let overlaps: Vec<Overlap> =
        whole.overlaps.iter().filter(|overlap| overlap.tools.iter().all(|id| seen.contains(id))).cloned().collect();
    let mut findings = lint(&part, &overlaps, language);
    // Where the operator's files are is none of a tenant's business.
    for finding in findings.iter_mut().filter(|finding| finding.file != registry::PUT) {
        finding.file.clear();
        finding.line = None;
    }
    Linted { registry: Arc::new(part), overlaps: Arc::new(overlaps), findings: Arc::new(findings), ..whole }
}

/// `registry` with the cards for which `keep` holds, and what is known beside them.
fn part_of(registry: &Registry, keep: impl Fn(&ToolId) -> bool) -> Registry {
    let cards = registry.cards.iter().filter(|(id, _)| keep(id));
    Registry {
        cards: cards.map(|(id, card)| (id.clone(), Arc::clone(card))).collect(),
        quarantined: registry.quarantined.clone(),
        scopes: registry.scopes.clone(),
        places: registry
            .places
            .iter()
            .filter(|(id, _)| keep(id))
            .map(|(id, place)| (id.clone(), place.clone()))
            .collect(),
        ..Registry::default()
    }
}

fn review(catalog: &Catalog, changed: &[ToolId], readers: &Readers) -> Review {
    let mut review = Review::default();
    let mut left_out = 0;
    let measure = catalog.overlaps(readers);
    let whole = (catalog.tools.len() <= ALL_UP_TO).then(|| {
        let overlaps = measure.as_ref().map(Overlaps::all).unwrap_or_default();
        lint(&catalog.registry, &overlaps, Language::English)
    });
    for id in changed.iter().take(MOST_CARDS) {
        let Some(tool) = catalog.tool(id) else { continue };
        let part;
        let findings = match &whole {
            // Of one tenant's card nothing is said that another tenant's cards give reason to.
            Some(findings) if tool.card.tenants.is_empty() => findings,
            Some(_) | None => {
                part = with_company(catalog, measure.as_ref(), id);
                &part
            }
        };
        for finding in findings {
            if finding.tool != id.as_str() || finding.severity < Severity::Warning {
                continue;
            }
            if review.findings.len() < MOST_FINDINGS {
                review.findings.push(finding.clone());
            } else {
                left_out += 1;
            }
        }
    }
    if left_out > 0 {
        review.notices.push(format!("{left_out} more findings on these cards are left out; `Lint` gives all"));
    }
    let unseen = changed.len().saturating_sub(MOST_CARDS);
    if unseen > 0 {
        review.notices.push(format!(
            "of the added and changed cards {MOST_CARDS} were linted and {unseen} were not; `Lint` looks at all"
        ));
    }
    review
}

/// The findings on a few cards: the one named `id` and its company.
fn with_company(catalog: &Catalog, measure: Option<&Overlaps<'_>>, id: &ToolId) -> Vec<Finding> {
    let of = |measure: &Overlaps<'_>| catalog.position(id).map(|position| measure.of(position));
    let overlaps = measure.and_then(of).unwrap_or_default();
    let company = company(&catalog.registry, id, &overlaps);
    lint(&part_of(&catalog.registry, |other| company.contains(other)), &overlaps, Language::English)
}

/// The card itself, the cards it overlaps with, those it names, and those of other sources with a name like its own;
/// none that its callers cannot see.
fn company(registry: &Registry, id: &ToolId, overlaps: &[Overlap]) -> BTreeSet<ToolId> {
    let mut company = BTreeSet::from([id.clone()]);
    let Some(card) = registry.cards.get(id) else { return company };
    company.extend(overlaps.iter().take(COMPANY / 2).flat_map(|overlap| overlap.tools.clone()));
    let words = words(card);
    for (other, its) in &registry.cards {
        if company.len() > COMPANY {
            break;
        }
        let named = words.contains(other.as_str()) || words.contains(its.name.as_str());
        let alike = its.source != card.source && is_like(&its.name, &card.name);
        if (named || alike) && share_callers(card, its) {
            company.insert(other.clone());
        }
    }
    company
}

/// Whether somebody may see both.
fn share_callers(one: &ToolCard, other: &ToolCard) -> bool {
    one.tenants.is_empty() || other.tenants.is_empty() || one.tenants.iter().any(|t| other.tenants.contains(t))
}

/// Everything in the card that may be the name of a tool.
fn words(card: &ToolCard) -> BTreeSet<String> {
    let text = serde_json::to_string(card).unwrap_or_default();
    let ends = |c: char| c.is_whitespace() || c.is_control() || "\"'`,;:()[]{}<>。，；：（）「」".contains(c);
    text.split(ends).map(|word| word.trim_matches('.')).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

fn is_like(one: &str, other: &str) -> bool {
    /// Longer names are compared in full by the rule itself.
    const MAX_BYTES: usize = 128;
    one.len() <= MAX_BYTES
        && one.len().abs_diff(other.len()) <= 3
        && strsim::damerau_levenshtein(&one.to_lowercase(), &other.to_lowercase()) <= 2
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn card(id: &str, source: &str, tenants: &[&str], what: &str) -> (ToolId, Arc<ToolCard>) {
        let mut card = ToolCard::reading(id.rsplit('/').next().unwrap(), json!({"type": "object"}));
        card.id = ToolId::new(id);
        card.source = source.into();
        card.tenants = tenants.iter().map(|tenant| (*tenant).to_owned()).collect();
        card.description.what = what.into();
        (card.id.clone(), Arc::new(card))
    }

    #[test]
    fn a_changed_card_is_seen_with_those_it_names_those_named_like_it_and_those_close_to_it() {
        let cards = [
            card("get_order", "shop", &["acme"], "Not for parcels: use `track_parcel`. 退款用 refund。"),
            card("track_parcel", "shop", &[], ""),
            card("refund", "shop", &[], ""),
            card("crm/get_orders", "crm", &[], ""),
            card("crm/get_ordre", "crm", &["globex"], ""),
            card("close", "shop", &[], ""),
            card("stranger", "shop", &[], ""),
        ];
        let registry = Registry { cards: cards.into(), ..Registry::default() };
        let tools = [ToolId::new("close"), ToolId::new("get_order")];
        let overlaps = [Overlap { tools, closeness: 0.5, phrases: Default::default() }];
        let company = company(&registry, &ToolId::new("get_order"), &overlaps);
        let names: Vec<&str> = company.iter().map(ToolId::as_str).collect();
        assert_eq!(names, ["close", "crm/get_orders", "get_order", "refund", "track_parcel"]);
        let part = part_of(&registry, |id| company.contains(id));
        assert_eq!(part.cards.len(), 5);
    }

    #[test]
    fn findings_are_counted_by_severity() {
        let finding = |severity| Finding {
            rule: "x",
            severity,
            tool: "t".into(),
            file: String::new(),
            line: None,
            reason: String::new(),
            proposal: String::new(),
            other: None,
        };
        assert_eq!(counts(&[Severity::Note, Severity::Error, Severity::Note].map(finding)), [1, 0, 2]);
        assert_eq!(
            [Severity::Error, Severity::Warning, Severity::Note].map(severity_name),
            ["error", "warning", "note"]
        );
    }
}
