//! What a tool says it changes, how it is confirmed and repeated, and what comes back.

use std::sync::LazyLock;

use regex::Regex;

use super::card::Card;
use super::lexicon;
use super::report::{Hit, Report, words};
use super::words::effects::{
    DESTRUCTIVE_NO_PREVIEW, FALLBACK_NOT_READ, HINT_CONTRADICTION, MISSING_SIDE_EFFECT, NO_DONE_FIELD,
    NO_IDEMPOTENCY_KEY, NO_RESULT_FIELDS, PREVIEW_NOT_READ, SIDE_EFFECT_TOO_LOW, TOKEN_NOT_REQUIRED, UNSTATED_LIMITS,
};
use crate::registry::Registry;
use crate::text::tokenise;
use crate::tool::{Confirmation, ConfirmedBy, Execution, Run, SideEffect};

pub(super) fn check(card: &Card<'_>, registry: &Registry, report: &mut Report) {
    unstated(card, report);
    match (card.card.side_effect_declared, card.card.side_effect) {
        (true, SideEffect::Read) => contradiction(card, report),
        (true, SideEffect::Write) => too_low(card, report),
        (true, SideEffect::Destructive) => no_preview(card, report),
        (false, _) => {}
    }
    confirmation(card, registry, report);
    key(card, report);
    fallback(card, registry, report);
    results(card, report);
}

fn unstated(card: &Card<'_>, report: &mut Report) {
    let language = report.language;
    if !card.card.side_effect_declared {
        let (seems, seems_zh) = match acts_by_name(&card.card.name) {
            Some(verb) if lexicon::is_irreversible(verb) => ("destructive", "destructive"),
            Some(_) => ("write", "write"),
            None => ("read", "read"),
        };
        let reason = words!(
            language,
            "The card does not say what a call changes, so gate and cache treat it as destructive.",
            "卡片没有写明调用会改动什么，网关和缓存按 destructive 处理。"
        );
        let proposal = words!(
            language,
            "State `side_effect`; by its name `{seems}` seems right.",
            "写上 `side_effect`；从名称看应为 `{seems_zh}`。"
        );
        report.add(&MISSING_SIDE_EFFECT, card, Hit { pointer: String::new(), reason, proposal });
    }
    if card.native || (card.card.timeout.is_some() && !card.card.scopes.is_empty()) {
        return;
    }
    let reason = words!(
        language,
        "Timeout or permissions are not stated: a default is used, and every caller may call the tool.",
        "没有写明超时或权限：使用默认超时，所有调用方都可以调用。"
    );
    let proposal = words!(
        language,
        "State `timeout_ms` (the slowest calls times 1.5) and `permissions` in a native card.",
        "用原生卡片写上 `timeout_ms`（最慢调用的 1.5 倍）和 `permissions`。"
    );
    report.add(&UNSTATED_LIMITS, card, Hit { pointer: String::new(), reason, proposal });
}

/// The verb of a name that changes something, unless another part of the name reads.
fn acts_by_name(name: &str) -> Option<&'static str> {
    const READING: [&str; 16] = [
        "get", "list", "search", "lookup", "info", "status", "check", "find", "read", "query", "preview", "history",
        "count", "validate", "view", "estimate",
    ];
    let parts = tokenise(name.rsplit(['.', '/', ':']).next().unwrap_or(name));
    if let Some(verb) = lexicon::changes_zh(name) {
        return Some(verb);
    }
    let first = lexicon::verb(parts.first()?)?;
    let reads = parts.iter().any(|part| READING.contains(&part.as_str()));
    (lexicon::is_changing(first) && !reads).then_some(first)
}

fn contradiction(card: &Card<'_>, report: &mut Report) {
    let language = report.language;
    let method = match &card.card.run {
        Some(Run::Http(run)) if matches!(run.method.as_str(), "DELETE" | "PUT" | "PATCH") => Some(run.method.as_str()),
        Some(Run::Http(_) | Run::Mcp(_)) | None => None,
    };
    let name = &card.card.name;
    let (pointer, reason) = if let Some(verb) = acts_by_name(name) {
        let reason = words!(
            language,
            "The class is `read`, yet by its name `{name}` the tool changes something (`{verb}`).",
            "类别是 `read`，但从名称 `{name}` 看会改动数据（`{verb}`）。"
        );
        ("/side_effect", reason)
    } else if let Some(method) = method {
        let reason = words!(
            language,
            "The class is `read`, yet the tool is run with the HTTP method {method}.",
            "类别是 `read`，但工具用 HTTP 方法 {method} 运行。"
        );
        ("/run/method", reason)
    } else {
        return;
    };
    let proposal = words!(
        language,
        "State `side_effect: write`, or `destructive` if it cannot be undone; if it really only reads, rename it.",
        "写成 `side_effect: write`，不可撤销则写 `destructive`；如果真的只读，请改名。"
    );
    report.add(&HINT_CONTRADICTION, card, Hit { pointer: pointer.into(), reason, proposal });
}

static FINAL: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?ix)\b(?:can(?:not|\s+not|['’]t)|never)\s+be\s+(?:\w+\s+)?(?:undone|reversed|revoked|recalled|restored|recovered|withdrawn|taken\s+(?:back|away)|called\s+back)\b
          | \birreversibl[ey]\b | \bpermanently\b | \bno\s+way\s+back\b
          | 不可(?:撤销|撤回|逆|恢复) | (?:无法|不能)(?:撤销|撤回|恢复|追回|挽回) | 永久(?:删除|生效)",
    )
    .expect("the pattern is constant and tested")
});

fn too_low(card: &Card<'_>, report: &mut Report) {
    let language = report.language;
    let description = card.card.description.as_given();
    let first = tokenise(&card.card.name).into_iter().next().unwrap_or_default();
    let said = FINAL.find(description).map(|found| found.as_str());
    let reason = match (said, lexicon::is_irreversible(&first)) {
        (Some(said), _) => words!(
            language,
            "The class is `write`, yet the description says \"{said}\".",
            "类别是 `write`，但描述里写着“{said}”。"
        ),
        (None, true) => words!(
            language,
            "The class is `write`; what a tool that starts with `{first}` does can seldom be undone without a person.",
            "类别是 `write`；以 `{first}` 开头的工具做的事，通常没有人工介入就无法挽回。"
        ),
        (None, false) => return,
    };
    let proposal = words!(
        language,
        "Ask who mends a mistake. If it needs a person, state `side_effect: destructive` and `confirmation: {{by: gate}}`.",
        "想一想出错后由谁纠正。需要人工就写 `side_effect: destructive` 和 `confirmation: {{by: gate}}`。"
    );
    report.add(&SIDE_EFFECT_TOO_LOW, card, Hit { pointer: "/side_effect".into(), reason, proposal });
}

fn no_preview(card: &Card<'_>, report: &mut Report) {
    if card.card.confirmation.is_some() || card.card.execution == Execution::ProposeOnly {
        return;
    }
    let language = report.language;
    let name = &card.card.name;
    let reason = words!(
        language,
        "`{name}` cannot be undone, yet nobody sees the arguments before it runs.",
        "`{name}` 不可撤销，执行前却没有人看到参数。"
    );
    let proposal = words!(
        language,
        "Add a read tool `preview_{name}` and `confirmation: {{by: preview_tool, tool: preview_{name}, token_param: \
         confirm_token}}`, or at least `confirmation: {{by: gate}}`.",
        "增加只读工具 `preview_{name}` 并写上 `confirmation: {{by: preview_tool, tool: preview_{name}, token_param: \
         confirm_token}}`，至少写 `confirmation: {{by: gate}}`。"
    );
    report.add(&DESTRUCTIVE_NO_PREVIEW, card, Hit { pointer: "/side_effect".into(), reason, proposal });
}

fn confirmation(card: &Card<'_>, registry: &Registry, report: &mut Report) {
    let Some(Confirmation { by: ConfirmedBy::PreviewTool, tool: Some(tool), token_param: Some(token) }) =
        &card.card.confirmation
    else {
        return;
    };
    let language = report.language;
    if let Some(preview) = registry.cards.get(tool.as_str()) {
        let pointer = "/confirmation/tool".to_owned();
        let fields = &preview.result_fields;
        if !preview.is_known_to_read() {
            let class = preview.side_effect.as_str();
            let reason = words!(
                language,
                "The preview tool `{tool}` is of class `{class}`; a preview only computes.",
                "预览工具 `{tool}` 的类别是 `{class}`；预览只应计算。"
            );
            let proposal = words!(
                language,
                "Name a tool with `side_effect: read` that computes what would change.",
                "请写一个 `side_effect: read`、只计算会改动什么的工具。"
            );
            report.add(&PREVIEW_NOT_READ, card, Hit { pointer, reason, proposal });
        } else if !fields.is_empty() && !fields.contains(token) {
            let reason = words!(
                language,
                "The result of `{tool}` does not let `{token}` through.",
                "`{tool}` 的结果没有放行 `{token}`。"
            );
            let proposal = words!(
                language,
                "Add `{token}` to the `result_fields` of `{tool}`.",
                "在 `{tool}` 的 `result_fields` 里加上 `{token}`。"
            );
            report.add(&PREVIEW_NOT_READ, card, Hit { pointer, reason, proposal });
        }
    }
    if !card.required().contains(&token.as_str()) {
        let reason = words!(
            language,
            "`{token}` is not a required parameter, so the tool can be called without a preview.",
            "`{token}` 不是必填参数，没有预览也能调用。"
        );
        let proposal = words!(
            language,
            "Add `{token}` to `properties` and to `required`.",
            "把 `{token}` 写进 `properties` 和 `required`。"
        );
        report.add(&TOKEN_NOT_REQUIRED, card, Hit { pointer: "/confirmation/token_param".into(), reason, proposal });
    }
}

fn key(card: &Card<'_>, report: &mut Report) {
    if !card.card.is_known_to_act() || card.card.idempotent || card.card.idempotency_ttl.is_some() {
        return;
    }
    let language = report.language;
    let name = &card.card.name;
    let reason = words!(
        language,
        "A second call of `{name}` acts again, and no key tells the two apart; automatic retry is off.",
        "再次调用 `{name}` 会再执行一遍，又没有幂等键区分；自动重试因此关闭。"
    );
    let proposal = words!(
        language,
        "Add `idempotency_ttl_s: 3600`, as long as the action can be taken back, or `idempotent: true` if repeating \
         changes nothing.",
        "加上 `idempotency_ttl_s: 3600`（与可撤回的时间一致）；如果重复调用不会再改动，就写 `idempotent: true`。"
    );
    report.add(&NO_IDEMPOTENCY_KEY, card, Hit { pointer: "/idempotent".into(), reason, proposal });
}

fn fallback(card: &Card<'_>, registry: &Registry, report: &mut Report) {
    let Some(tool) = &card.card.fallback else { return };
    let Some(target) = registry.cards.get(tool.as_str()).filter(|target| !target.is_known_to_read()) else { return };
    let (language, class) = (report.language, target.side_effect.as_str());
    let reason = words!(
        language,
        "The fallback `{tool}` is of class `{class}` and would run without being asked for.",
        "后备工具 `{tool}` 的类别是 `{class}`，会在没人要求时运行。"
    );
    let proposal =
        words!(language, "Name a tool that reads, or `fallback: null`.", "换成只读的工具，或写 `fallback: null`。");
    report.add(&FALLBACK_NOT_READ, card, Hit { pointer: "/fallback".into(), reason, proposal });
}

fn results(card: &Card<'_>, report: &mut Report) {
    const DONE: [&str; 10] =
        ["done", "success", "succeeded", "ok", "accepted", "status", "state", "applied", "confirmed", "completed"];
    let language = report.language;
    let fields = &card.card.result_fields;
    if fields.is_empty() {
        let reason = words!(
            language,
            "`result_fields` is empty, so the whole answer of the backend reaches the model.",
            "`result_fields` 为空，后端的整个回答都会到达模型。"
        );
        let proposal = words!(
            language,
            "List the fields that users may see, such as `result_fields: [order_id, status]`.",
            "列出用户可以看到的字段，例如 `result_fields: [order_id, status]`。"
        );
        report.add(&NO_RESULT_FIELDS, card, Hit { pointer: "/result_fields".into(), reason, proposal });
    } else if card.card.is_known_to_act() && !fields.iter().any(|field| DONE.contains(&field.to_lowercase().as_str())) {
        let reason = words!(
            language,
            "No field of the result says that the change took effect.",
            "结果里没有字段说明改动已生效。"
        );
        let proposal = words!(
            language,
            "Let the backend answer `done: true` and add `done` to `result_fields`.",
            "让后端返回 `done: true`，并把 `done` 加到 `result_fields`。"
        );
        report.add(&NO_DONE_FIELD, card, Hit { pointer: "/result_fields".into(), reason, proposal });
    }
}
