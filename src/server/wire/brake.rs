//! What is disabled, and the mode.

use super::request::{MAX_ID_BYTES, at_most, invalid};
use crate::pipeline::{Brake, ModeSet, RunMode, Standing, Target};
use crate::server::proto;
use crate::types::{Problem, UnixMs};

/// Longest reason, in characters: it stands in every refusal.
const MAX_REASON: usize = 200;

/// Names a tool or a source, whichever field of a request that was.
pub(in crate::server) fn target(tool: Option<String>, source: Option<String>) -> Result<Target, Problem> {
    let (field, target) = match (tool, source) {
        (Some(tool), None) => ("tool", Target::Tool(tool)),
        (None, Some(source)) => ("source", Target::Source(source)),
        (Some(_), Some(_)) | (None, None) => return Err(invalid("what", "missing", "a tool or a source")),
    };
    if target.name().is_empty() {
        return Err(invalid(field, "must not be empty", "a name as List gives it"));
    }
    at_most(field, target.name().len(), MAX_ID_BYTES, "bytes")?;
    Ok(target)
}

/// One line, for those who meet it later.
pub(in crate::server) fn reason(reason: &str) -> Result<String, Problem> {
    let reason = reason.trim();
    if reason.is_empty() {
        return Err(invalid("reason", "must not be empty", "why, in a few words"));
    }
    if reason.chars().any(char::is_control) {
        return Err(invalid("reason", "cannot be used", "one line of text"));
    }
    at_most("reason", reason.chars().count(), MAX_REASON, "characters")?;
    Ok(reason.to_owned())
}

/// `None` for 0: not until somebody ends it.
pub(in crate::server) fn until(until_ms: i64, now: UnixMs) -> Result<Option<UnixMs>, Problem> {
    match until_ms {
        0 => Ok(None),
        later if later > now.0 => Ok(Some(UnixMs(later))),
        _ => Err(invalid("until_ms", "is past", "a later Unix time in milliseconds, or 0")),
    }
}

pub(in crate::server) fn mode(name: &str) -> Result<RunMode, Problem> {
    RunMode::parse(name).ok_or_else(|| {
        let shown: String = name.chars().take(32).collect();
        invalid("mode", format!("unknown mode `{shown}`"), "normal, local_only or rules_only")
    })
}

pub(in crate::server) fn standing(standing: &Standing) -> proto::BrakesResponse {
    let Standing { brakes, mode: ModeSet { mode, reason, until, .. } } = standing;
    proto::BrakesResponse {
        brakes: brakes.iter().map(brake).collect(),
        mode: mode.as_str().into(),
        mode_reason: reason.clone(),
        mode_until_ms: until.map_or(0, |until| until.0),
    }
}

fn brake(brake: &Brake) -> proto::Brake {
    let Brake { target, reason, since, until, caller } = brake;
    proto::Brake {
        kind: target.kind().into(),
        name: target.name().to_owned(),
        reason: reason.clone(),
        since_ms: since.0,
        until_ms: until.map_or(0, |until| until.0),
        caller: caller.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_used_is_named() {
        let path = |problem: Problem| problem.fields[0].path.clone();
        assert_eq!(path(target(None, None).unwrap_err()), "what");
        assert_eq!(path(target(Some(String::new()), None).unwrap_err()), "tool");
        assert_eq!(path(target(None, Some("x".repeat(513))).unwrap_err()), "source");
        assert_eq!(target(None, Some("商店".into())).unwrap(), Target::Source("商店".into()));
        for bad in ["", "  ", "a\nb", &"长".repeat(201)] {
            assert_eq!(path(reason(bad).unwrap_err()), "reason", "{bad}");
        }
        assert_eq!(reason(" 金额算错 ").unwrap(), "金额算错");
        assert_eq!(path(until(5, UnixMs(5)).unwrap_err()), "until_ms");
        assert_eq!((until(0, UnixMs(5)).unwrap(), until(6, UnixMs(5)).unwrap()), (None, Some(UnixMs(6))));
        assert_eq!(path(mode("turbo").unwrap_err()), "mode");
    }
}
