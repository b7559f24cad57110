//! The `Retry-After` header: seconds, or a date (RFC 9110, section 10.2.3).

use std::time::{Duration, SystemTime};

/// How long to wait; a date in the past means not at all.
pub(crate) fn parse(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return (seconds >= 0.0).then(|| Duration::try_from_secs_f64(seconds).ok()).flatten();
    }
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(date(text)?);
    Some(at.duration_since(now).unwrap_or_default())
}

/// `Wed, 21 Oct 2015 07:28:00 GMT` in seconds since 1970. The two obsolete forms are not read.
fn date(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let parts: Vec<&str> = text.split_ascii_whitespace().collect();
    let [_, day, month, year, time, "GMT"] = parts[..] else { return None };
    let month = 1 + u64::try_from(MONTHS.iter().position(|name| *name == month)?).ok()?;
    let (day, year): (u64, u64) = (day.parse().ok()?, year.parse().ok()?);
    let clock: Vec<u64> = time.split(':').map(str::parse).collect::<Result<_, _>>().ok()?;
    let [hour, minute, second] = clock[..] else { return None };
    if !(1970..=9999).contains(&year) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    Some(((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second)
}

/// Days since 1970-01-01. Years are counted from March, so that the leap day is the last of its year.
fn days(year: u64, month: u64, day: u64) -> u64 {
    const TO_1970: u64 = 719_468;
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - TO_1970
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates_are_read_and_nonsense_is_not() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_445_412_470);
        let of = |text: &str| parse(text, now).map(|wait| wait.as_millis());
        assert_eq!([of("2"), of(" 0.25 "), of("0")], [Some(2000), Some(250), Some(0)]);
        assert_eq!(of("Wed, 21 Oct 2015 07:28:00 GMT"), Some(10_000));
        assert_eq!(of("Tue, 01 Jan 2008 00:00:00 GMT"), Some(0));
        for bad in ["", "-1", "soon", "NaN", "inf", "Wed, 21 Oct 2015", "Wed, 99 Oct 2015 07:28:00 GMT", "1e300"] {
            assert_eq!(of(bad), None, "{bad}");
        }
        assert_eq!(date("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(date("Tue, 29 Feb 2000 12:00:00 GMT"), Some(951_825_600));
    }
}
