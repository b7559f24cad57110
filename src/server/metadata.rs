//! What a call says beside its message: who calls, how long the caller waits, and which trace it belongs to.

use std::time::Duration;

use metrics::counter;
use tonic::metadata::MetadataMap;
use tonic::{Request, Status};

use super::incoming::Peer;
use super::status;
use crate::identity::{Credentials, Identity, Refused};
use crate::telemetry::names;
use crate::types::{Caller, Deadline, FieldProblem, Problem};

/// Who calls.
///
/// # Errors
/// A status for a caller who is not admitted.
pub(super) fn caller<T>(identity: &Identity, request: &Request<T>) -> Result<Caller, Status> {
    resolve(identity, request).map_err(|refused| {
        counter!(names::CALLERS_REFUSED, "reason" => refused.as_str()).increment(1);
        status::refused(refused)
    })
}

fn resolve<T>(identity: &Identity, request: &Request<T>) -> Result<Caller, Refused> {
    let peer = request.extensions().get::<Peer>();
    let header = identity.header().map(|name| only(request.metadata(), name)).transpose()?.flatten();
    identity.resolve(Credentials {
        peer: peer.map(|peer| peer.address).or_else(|| request.remote_addr()),
        authorization: only(request.metadata(), "authorization")?,
        header,
        certificate: peer.and_then(|peer| peer.certificate.as_deref()).map(|der| der.as_ref()),
    })
}

/// The one value of a header; one that is no text counts as there and empty. Which of two counts must not depend on who
/// reads them.
fn only<'a>(metadata: &'a MetadataMap, name: &str) -> Result<Option<&'a str>, Refused> {
    let mut values = metadata.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(Refused::Ambiguous);
    }
    Ok(first.map(|value| std::str::from_utf8(value.as_encoded_bytes()).unwrap_or_default()))
}

/// The earlier of the caller's `grpc-timeout` and `most`, which is also the default.
///
/// The caller's figure is shortened a little: the transport cuts a late call with CANCELLED, and the caller is to
/// read DEADLINE_EXCEEDED.
///
/// # Errors
/// [`Problem`] for a `grpc-timeout` that cannot be read.
pub(super) fn deadline(metadata: &MetadataMap, most: Duration) -> Result<Deadline, Problem> {
    let deadline = Deadline::after(most);
    let Some(value) = metadata.get("grpc-timeout") else { return Ok(deadline) };
    let Some(timeout) = value.to_str().ok().and_then(parse_timeout) else {
        let expected = "1 to 8 digits and a unit: H, M, S, m, u or n".into();
        let field = FieldProblem { path: "grpc-timeout".into(), expected, example: Some("500m".into()) };
        return Err(Problem::invalid_request("cannot be read", vec![field]));
    };
    let margin = (timeout / 10).clamp(Duration::from_millis(1), Duration::from_millis(20));
    Ok(deadline.capped(timeout.saturating_sub(margin)))
}

fn parse_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if !(1..=8).contains(&digits.len()) || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let amount: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(amount * 3600)),
        "M" => Some(Duration::from_secs(amount * 60)),
        "S" => Some(Duration::from_secs(amount)),
        "m" => Some(Duration::from_millis(amount)),
        "u" => Some(Duration::from_micros(amount)),
        "n" => Some(Duration::from_nanos(amount)),
        _ => None,
    }
}

/// The trace id of a valid W3C `traceparent`: 32 lower-case hex digits. An invalid one is ignored, as the
/// specification asks.
pub(super) fn trace_id(metadata: &MetadataMap) -> Option<String> {
    let text = metadata.get("traceparent")?.to_str().ok()?;
    let mut parts = text.split('-');
    let (version, trace, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let hex =
        |part: &str, len: usize| part.len() == len && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let zero = |part: &str| part.bytes().all(|b| b == b'0');
    let shaped = hex(version, 2) && hex(trace, 32) && hex(parent, 16) && hex(flags, 2);
    // Later versions may append parts; version 00 has exactly four.
    let known = version != "ff" && (version != "00" || parts.next().is_none());
    (shaped && known && !zero(trace) && !zero(parent)).then(|| trace.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(key: &'static str, value: &str) -> MetadataMap {
        let mut map = MetadataMap::new();
        map.insert(key, value.parse().unwrap());
        map
    }

    #[test]
    fn timeouts_as_the_protocol_writes_them() {
        assert_eq!(parse_timeout("250m"), Some(Duration::from_millis(250)));
        assert_eq!(parse_timeout("2S"), Some(Duration::from_secs(2)));
        assert_eq!(parse_timeout("99999999H"), Some(Duration::from_secs(99_999_999 * 3600)));
        for bad in ["", "m", "S5", "123456789m", "-5m", "+5m", "1.5S", "10", "5秒", "5s"] {
            assert_eq!(parse_timeout(bad), None, "{bad}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_earlier_of_caller_and_settings_counts() {
        let most = Duration::from_secs(10);
        let left = |value: &str| deadline(&metadata("grpc-timeout", value), most).unwrap().remaining();
        assert_eq!(left("1S"), Duration::from_millis(980));
        assert_eq!(left("50m"), Duration::from_millis(45));
        assert_eq!(left("1m"), Duration::ZERO);
        assert_eq!(left("99999999H"), most);
        assert_eq!(deadline(&MetadataMap::new(), most).unwrap().remaining(), most);
        let problem = deadline(&metadata("grpc-timeout", "soon"), most).unwrap_err();
        assert_eq!(problem.fields[0].path, "grpc-timeout");
    }

    #[test]
    fn only_valid_trace_contexts_are_followed() {
        let id = "4bf92f3577b34da6a3ce929d0e0e4736";
        let read = |value: &str| trace_id(&metadata("traceparent", value));
        assert_eq!(read(&format!("00-{id}-00f067aa0ba902b7-01")).as_deref(), Some(id));
        assert_eq!(read(&format!("01-{id}-00f067aa0ba902b7-01-more")).as_deref(), Some(id));
        for bad in [
            format!("00-{id}-00f067aa0ba902b7-01-more"),
            format!("ff-{id}-00f067aa0ba902b7-01"),
            format!("00-{}-00f067aa0ba902b7-01", id.to_uppercase()),
            format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            format!("00-{id}-0000000000000000-01"),
            format!("00-{id}"),
            "nonsense".into(),
        ] {
            assert_eq!(read(&bad), None, "{bad}");
        }
    }
}
