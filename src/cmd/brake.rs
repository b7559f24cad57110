//! `pointsman brake`: what of a running server is out of service, and the mode in which it chooses.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Subcommand, ValueEnum};
use pointsman::server::proto::{
    self, BrakesRequest, BrakesResponse, DisableRequest, EnableRequest, SetModeRequest, disable_request, enable_request,
};
use serde_json::json;

use super::block_on;
use super::failure::Failure;
use super::options::Format;
use super::remote::Remote;

#[derive(clap::Args)]
#[command(
    after_help = "Exit codes: 0 done, 1 the server failed or cannot be reached, 2 it knows no such tool or source, or \
                        this caller may not.\nWithout --addr the server at http://127.0.0.1:50051 is asked.\n\n\
                        Examples:\n  \
                        pointsman brake status\n  \
                        pointsman brake disable --tool issue_coupon --reason \"amounts are wrong\" --for 2h\n  \
                        pointsman brake disable --source shop --reason \"maintenance\" --addr https://tools.example:50051 --token-file token\n  \
                        pointsman brake enable --tool issue_coupon\n  \
                        pointsman brake mode local_only --reason \"the LLM endpoint answers nonsense\" --for 30m\n  \
                        pointsman brake mode normal"
)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show what is disabled, and the mode in force
    Status(Asking),
    /// Take a tool or all tools of a source out of service, from the next request on; kept over restarts
    Disable {
        #[command(flatten)]
        what: What,
        #[command(flatten)]
        why: Why,
        #[command(flatten)]
        asking: Asking,
    },
    /// Put a tool or a source back into service
    Enable {
        #[command(flatten)]
        what: What,
        #[command(flatten)]
        asking: Asking,
    },
    /// Choose without the LLM, or by rules alone, until it is set back; kept over restarts
    Mode {
        #[arg(value_enum)]
        mode: Mode,
        /// Why; needed for everything but normal
        #[arg(long, value_name = "TEXT", required_if_eq_any([("mode", "local_only"), ("mode", "rules_only")]))]
        reason: Option<String>,
        #[command(flatten)]
        end: End,
        #[command(flatten)]
        asking: Asking,
    },
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct What {
    /// Name of the tool
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// Name of the source, as the registry calls it
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
}

#[derive(clap::Args)]
struct Why {
    /// Why, in one line: it stands in refusals and in the audit record
    #[arg(long, value_name = "TEXT")]
    reason: String,
    #[command(flatten)]
    end: End,
}

#[derive(clap::Args)]
struct End {
    /// How long, such as 30m or 2h; without it until it is ended
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
    time: Option<Duration>,
}

/// Whom to ask, and how to print.
#[derive(clap::Args)]
struct Asking {
    #[command(flatten)]
    remote: Remote,
    /// How to print the answer
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Mode {
    Normal,
    LocalOnly,
    RulesOnly,
}

impl Mode {
    fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::LocalOnly => "local_only",
            Self::RulesOnly => "rules_only",
        }
    }
}

pub fn run(args: Args) -> Result<(), Failure> {
    let (asking, answer) = match args.command {
        Command::Status(asking) => {
            let server = asking.remote.server_or_default()?;
            let ask = server.registry(BrakesRequest {}, async |mut registry, request| registry.brakes(request).await);
            (asking.format, block_on(ask)?)
        }
        Command::Disable { what, why, asking } => {
            let server = asking.remote.server_or_default()?;
            let until_ms = why.end.until_ms()?;
            let request = DisableRequest { what: what.disable(), reason: why.reason, until_ms };
            let ask = server.registry(request, async |mut registry, request| registry.disable(request).await);
            (asking.format, block_on(ask)?)
        }
        Command::Enable { what, asking } => {
            let server = asking.remote.server_or_default()?;
            let request = EnableRequest { what: what.enable() };
            let ask = server.registry(request, async |mut registry, request| registry.enable(request).await);
            (asking.format, block_on(ask)?)
        }
        Command::Mode { mode, reason, end, asking } => {
            let server = asking.remote.server_or_default()?;
            let (mode, reason) = (mode.as_str().to_owned(), reason.unwrap_or_default());
            let request = SetModeRequest { mode, reason, until_ms: end.until_ms()? };
            let ask = server.registry(request, async |mut registry, request| registry.set_mode(request).await);
            (asking.format, block_on(ask)?)
        }
    };
    let text = match asking {
        Format::Text => text(&answer),
        Format::Json => json(&answer),
    };
    std::io::stdout()
        .write_all(text.as_bytes())
        .map_err(|err| Failure::failed(err).context("cannot write to standard output"))
}

impl What {
    fn disable(self) -> Option<disable_request::What> {
        use disable_request::What::{Source, Tool};
        self.tool.map(Tool).or(self.source.map(Source))
    }

    fn enable(self) -> Option<enable_request::What> {
        use enable_request::What::{Source, Tool};
        self.tool.map(Tool).or(self.source.map(Source))
    }
}

impl End {
    /// 0 without an end.
    fn until_ms(&self) -> Result<i64, Failure> {
        let Some(time) = self.time else { return Ok(0) };
        let since = SystemTime::now().checked_add(time).and_then(|end| end.duration_since(UNIX_EPOCH).ok());
        since
            .and_then(|since| i64::try_from(since.as_millis()).ok())
            .ok_or_else(|| Failure::unusable(anyhow::anyhow!("--for reaches too far; leave it out for no end")))
    }
}

/// Keys are always present; times are Unix milliseconds, `null` where there is none.
fn json(answer: &BrakesResponse) -> String {
    let time = |ms: i64| (ms != 0).then_some(ms);
    let brake = |brake: &proto::Brake| {
        json!({
            "kind": brake.kind,
            "name": brake.name,
            "reason": brake.reason,
            "since_ms": brake.since_ms,
            "until_ms": time(brake.until_ms),
            "caller": brake.caller,
        })
    };
    let all = json!({
        "mode": answer.mode,
        "mode_reason": answer.mode_reason,
        "mode_until_ms": time(answer.mode_until_ms),
        "brakes": answer.brakes.iter().map(brake).collect::<Vec<_>>(),
    });
    format!("{all}\n")
}

fn text(answer: &BrakesResponse) -> String {
    let reason = |reason: &str| if reason.is_empty() { String::new() } else { format!(": {reason}") };
    let until = |ms: i64| if ms == 0 { String::new() } else { format!(" until {}", time(ms)) };
    let mut out = format!("mode    {}{}{}\n", answer.mode, until(answer.mode_until_ms), reason(&answer.mode_reason));
    for brake in &answer.brakes {
        let by = if brake.caller.is_empty() { String::new() } else { format!(" by {}", brake.caller) };
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{:<7} {} disabled since {}{by}{}{}",
            brake.kind,
            brake.name,
            time(brake.since_ms),
            until(brake.until_ms),
            reason(&brake.reason)
        );
    }
    if answer.brakes.is_empty() {
        out.push_str("nothing is disabled\n");
    }
    out
}

/// In UTC, to the second; a server may name a time that no calendar holds.
fn time(ms: i64) -> String {
    // The last moment of the year 9999.
    const LAST: u64 = 253_402_300_799_000;
    let ms = u64::try_from(ms).unwrap_or_default().min(LAST);
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(ms)).to_string()
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    fn answer() -> BrakesResponse {
        let brake = proto::Brake {
            kind: "tool".into(),
            name: "issue_coupon".into(),
            reason: "金额算错".into(),
            since_ms: 1_700_000_000_000,
            until_ms: 0,
            caller: "op".into(),
        };
        let (mode, mode_reason) = ("rules_only".to_owned(), "incident".to_owned());
        BrakesResponse { brakes: vec![brake], mode, mode_reason, mode_until_ms: 1_700_000_060_000 }
    }

    #[test]
    fn answers_are_shown_for_people_and_for_scripts() {
        assert_eq!(
            text(&answer()),
            "mode    rules_only until 2023-11-14T22:14:20Z: incident\n\
             tool    issue_coupon disabled since 2023-11-14T22:13:20Z by op: 金额算错\n"
        );
        assert_eq!(
            text(&BrakesResponse { mode: "normal".into(), ..Default::default() }),
            "mode    normal\nnothing is disabled\n"
        );
        let json: serde_json::Value = serde_json::from_str(&json(&answer())).unwrap();
        assert_eq!((&json["mode"], &json["mode_until_ms"]), (&json!("rules_only"), &json!(1_700_000_060_000_i64)));
        assert_eq!(json["brakes"][0]["until_ms"], serde_json::Value::Null);
        assert!(time(i64::MAX).starts_with("9999-") && time(-1).starts_with("1970-"));
    }

    #[test]
    fn flags_are_checked_before_anything_is_sent() {
        for good in [
            "status",
            "status --addr http://h:1 --format json",
            "disable --tool a --reason x",
            "disable --source a --reason x --for 2h",
            "enable --tool a",
            "mode normal",
            "mode local_only --reason x --for 30m",
        ] {
            assert!(parse::<Args>(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "disable --reason x",
            "disable --tool a",
            "disable --tool a --source b --reason x",
            "disable --tool a --reason x --for soon",
            "mode turbo --reason x",
            "mode rules_only",
            "enable",
        ] {
            assert!(parse::<Args>(bad).is_err(), "{bad}");
        }
    }
}
