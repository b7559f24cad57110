//! `<service>_<what>_<unit>[_total]`.

/// Bounds of every histogram in seconds: they tell a cache hit (well under a millisecond) from an LLM call (seconds).
pub const LATENCY_BUCKETS_SECONDS: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// Counter `{method, code}`: requests answered.
pub const REQUESTS: &str = "pointsman_requests_total";
/// Gauge `{method}`: requests being worked on.
pub const REQUESTS_IN_FLIGHT: &str = "pointsman_requests_in_flight";
/// Histogram `{method}`: time from arrival to answer.
pub const REQUEST_DURATION: &str = "pointsman_request_duration_seconds";
/// Counter `{reason}`: calls of callers who were not admitted: `not_local`, `no_token`, `unknown_token`,
/// `header_from_afar`, `bad_header`, `unknown_certificate`, `ambiguous`.
pub const CALLERS_REFUSED: &str = "pointsman_callers_refused_total";
/// Counter `{result}`: times the keys of signed tokens were read: `ok`, `failed`.
pub const IDENTITY_KEY_READS: &str = "pointsman_identity_key_reads_total";
/// Counter `{result}`: TLS handshakes: `ok`, `failed`, `late`, `refused` (too many at a time).
pub const TLS_HANDSHAKES: &str = "pointsman_tls_handshakes_total";
/// Counter `{result}`: times the certificates were read again: `ok`, `failed` (those in force stay).
pub const TLS_RELOADS: &str = "pointsman_tls_reloads_total";
/// Counter `{result}`: lines of the audit record: `written`, `failed`.
pub const AUDIT_LINES: &str = "pointsman_audit_lines_total";
/// Histogram `{stage}`: time of one stage of one request.
pub const STAGE_DURATION: &str = "pointsman_stage_duration_seconds";
/// Counter `{outcome, decided_by}`.
pub const DECISIONS: &str = "pointsman_decisions_total";
/// Counter `{mode}`: decisions made in a degraded mode.
pub const DEGRADED: &str = "pointsman_degraded_total";
/// Counter `{result}`: `hit`, `joined`, `miss`, `bypass`, `off`.
pub const CACHE_LOOKUPS: &str = "pointsman_cache_lookups_total";
/// Counter `{result}`: `queued`, `dropped`, `failed`.
pub const DECISION_LOG_LINES: &str = "pointsman_decision_log_lines_total";
/// Counter `{endpoint, result}`: HTTP attempts at the LLM, by the endpoint's place in the configured order, from 1.
pub const LLM_ATTEMPTS: &str = "pointsman_llm_attempts_total";
/// Histogram `{endpoint, result}`: time of one HTTP attempt.
pub const LLM_ATTEMPT_DURATION: &str = "pointsman_llm_attempt_duration_seconds";
/// Counter `{kind}`: answers of the LLM that could not be used as they were.
pub const LLM_REPAIRS: &str = "pointsman_llm_repairs_total";
/// Counter `{end}`: how decisions with such answers ended: `repaired`, `no_tool`, `asked_user`, `fallback`,
/// `runner_up`, `fuse`, `budget`.
pub const LLM_REPAIR_ENDS: &str = "pointsman_llm_repair_ends_total";
/// Counter `{kind}`: `prompt`, `completion`, as the endpoint counts them, estimated where it does not.
pub const LLM_TOKENS: &str = "pointsman_llm_tokens_total";
/// Counter `{step}`: prompts whose tool cards were shortened to fit, by how far: `fewer_phrases`, `no_phrases`,
/// `no_optional_texts`, `short_texts`, `bare`.
pub const LLM_CARD_CUTS: &str = "pointsman_llm_card_cuts_total";
/// Counter `{rule}`: decisions by the rule that fired, `none` where none did; only while there is a rule file, which
/// closes the set.
pub const RULE_DECISIONS: &str = "pointsman_rule_decisions_total";
/// Counter `{domain, result}`: choices made beside the rules and compared: `same`, `same_tool`, `different`, `failed`,
/// `skipped`. Domains are those of the rule file, `none` where no rule fired.
pub const RULE_SHADOWS: &str = "pointsman_rule_shadows_total";
/// Counter `{endpoint, to}`: changes of an endpoint's breaker: `open`, `half_open`, `closed`.
pub const LLM_BREAKER_CHANGES: &str = "pointsman_llm_breaker_changes_total";
/// Gauge `{endpoint}`: 1 while the endpoint's breaker lets nothing but a probe through, else 0.
pub const LLM_BREAKER_OPEN: &str = "pointsman_llm_breaker_open";
/// Counter `{endpoint, reason}`: requests an endpoint had no room for: `queue` (it was full), `rate` (its rate limit lets
/// them through after their deadline).
pub const LLM_OVERLOADED: &str = "pointsman_llm_overloaded_total";
/// Counter `{endpoint}`: attempts that waited for the rate limit.
pub const LLM_RATE_WAITS: &str = "pointsman_llm_rate_waits_total";
/// Counter `{endpoint, parameter}`: parameters an endpoint has refused by name, once each.
pub const LLM_WITHDRAWN: &str = "pointsman_llm_withdrawn_parameters_total";
/// Counter `{endpoint, result}`: second requests beside a slow first one: `won` (it answered first), `lost`, `failed`
/// (neither answered), `skipped` (due, but there was no room for it), `cut` (caller or time gone meanwhile).
pub const LLM_HEDGES: &str = "pointsman_llm_hedges_total";
/// Counter `{kind}`: decisions for which a tenant's quota was used up: `calls`, `tokens`.
pub const LLM_QUOTA_REFUSALS: &str = "pointsman_llm_quota_refusals_total";
/// Counter `{result}`: attempts at tools this server runs: `ok`, `refused` (3xx, 4xx), `rate_limited`, `server_error`,
/// `tool_error` (MCP), `connect`, `private_address`, `timeout`, `deadline` (the caller's, before the tool's own), `broken`,
/// `unreadable`, `cancelled`.
pub const EXECUTE_ATTEMPTS: &str = "pointsman_execute_attempts_total";
/// Histogram `{result}`: time of one attempt at a tool.
pub const EXECUTE_ATTEMPT_DURATION: &str = "pointsman_execute_attempt_duration_seconds";
/// Counter `{reason}`: calls that ended before anything was tried: `not_executable`, `arguments`, `breaker`, `deadline`.
pub const EXECUTE_REFUSALS: &str = "pointsman_execute_refusals_total";
/// Counter `{to}`: changes of tools' breakers: `open`, `half_open`, `closed`.
pub const EXECUTE_BREAKER_CHANGES: &str = "pointsman_execute_breaker_changes_total";
/// Gauge: tools being served.
pub const CATALOG_TOOLS: &str = "pointsman_catalog_tools";
/// Gauge: cards that are not served.
pub const CATALOG_QUARANTINED: &str = "pointsman_catalog_quarantined";
/// Gauge: changes of cards that wait for approval; the cards before them keep serving.
pub const CATALOG_HELD: &str = "pointsman_catalog_held_cards";
/// Gauge: 1 while the catalog served last is served again because the registry files cannot be read, else 0.
pub const CATALOG_LAST_GOOD: &str = "pointsman_catalog_last_good";
/// Counter: versions that receivers of `Watch` were too slow for; each was told how many.
pub const WATCH_SKIPPED: &str = "pointsman_watch_skipped_versions_total";
/// Gauge: generation of the catalog being served.
pub const CATALOG_GENERATION: &str = "pointsman_catalog_generation";
/// Counter `{result}`: `ok`, `failed`.
pub const CATALOG_RELOADS: &str = "pointsman_catalog_reloads_total";
/// Gauge `{kind}`: what an operator has disabled: `tool`, `source`. Those that end by themselves leave it within half a
/// minute; for requests they end at once.
pub const BRAKES: &str = "pointsman_brakes";
/// Gauge `{mode}`: 1 for the mode in force, 0 for the others: `normal`, `local_only`, `rules_only`.
pub const MODE: &str = "pointsman_mode";
/// Gauge `{source}`: whether a live source could be asked for its tools the last time: 1, else 0 and what it listed
/// before is served.
pub const LIVE_SOURCE_UP: &str = "pointsman_live_source_up";
/// Counter `{result}`: answers of live sources asked for their tools: `changed`, `same`, `failed`.
pub const LIVE_LISTINGS: &str = "pointsman_live_listings_total";
/// Gauge `{severity}`: findings of lint on the cards being served, when they were last looked at: `error`, `warning`,
/// `note`. Up to 2,000 cards that is after every change, with more when somebody asks.
pub const LINT_FINDINGS: &str = "pointsman_lint_findings";
/// Counter `{result}`: graphs built behind a catalog being served: `ready`, `superseded`, `failed`.
pub const INDEX_GRAPHS: &str = "pointsman_index_graphs_total";
/// Gauge: part of the ten nearest rows that the graph found, over the last 100 searches repeated exactly.
pub const INDEX_RECALL: &str = "pointsman_index_recall_ratio";
/// Counter `{result}`: rows of these searches, `found`, `missed`.
pub const INDEX_RECALL_ROWS: &str = "pointsman_index_recall_rows_total";
/// Counter `{result}`: searches picked to be repeated, `measured`, `dropped`.
pub const INDEX_RECALL_SAMPLES: &str = "pointsman_index_recall_samples_total";
/// Counter: searches for which the graph could not vouch, so that a scan answered.
pub const INDEX_RESCANS: &str = "pointsman_index_rescans_total";
/// Counter `{verdict, class}`: what the gate decided: `go`, `confirm`, `propose`, `replay`, `in_flight`, `refused`;
/// class: `read`, `write`, `destructive`.
pub const GATE_VERDICTS: &str = "pointsman_gate_verdicts_total";
/// Counter `{ending}`: reports on calls that were let go: `succeeded`, `failed`, `effect_unknown`, `not_started`.
pub const GATE_ENDINGS: &str = "pointsman_gate_endings_total";
/// Counter `{kind}`: records that had to go before their time, because there was no room: `call`; and what could not be
/// kept: `token`, `result`.
pub const GATE_DROPPED: &str = "pointsman_gate_dropped_total";

/// Counter: records of calls removed because their time was over.
pub const GATE_SWEPT: &str = "pointsman_gate_swept_total";
/// Counter `{reason}`: calls not run because of what happened before in their turn: `fuse`, `empty_searches`.
pub const GATE_TURNS_OVER: &str = "pointsman_gate_turns_over_total";

/// Histogram: characters of a result's data as the model gets it.
pub const RESULT_CHARS: &str = "pointsman_result_size_characters";
/// Histogram: the same in estimated tokens.
pub const RESULT_TOKENS: &str = "pointsman_result_size_tokens";
/// Counter `{part}`: what was left out of results: `rows`, `fields`, `secrets`.
pub const RESULT_DROPPED: &str = "pointsman_result_dropped_total";
/// Bounds of histograms of sizes.
pub const SIZE_BUCKETS: &[f64] = &[0.0, 100.0, 250.0, 500.0, 1_000.0, 2_000.0, 3_000.0, 4_000.0, 10_000.0, 100_000.0];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn every_name_stands_once_and_has_the_common_form() {
        let source = include_str!("names.rs");
        let names: Vec<&str> = source
            .lines()
            .filter_map(|line| line.strip_prefix("pub const ")?.split_once("&str = \"")?.1.strip_suffix("\";"))
            .collect();
        assert!(names.len() > 10);
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        let fits =
            |name: &&str| name.starts_with("pointsman_") && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        assert!(names.iter().all(fits), "{names:?}");
    }
}
