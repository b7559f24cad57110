//! Hours of days of the week, in a fixed offset from UTC.

use crate::types::UnixMs;

const MINUTES_A_DAY: i64 = 24 * 60;
pub(super) const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
/// 1 January 1970.
const THURSDAY: i64 = 3;

/// From one minute of a day up to another, which may be on the next day: the day is that of the beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Window {
    /// Monday is 0; empty means every day.
    pub days: Vec<usize>,
    pub from: i64,
    pub to: i64,
    pub offset_minutes: i64,
}

impl Window {
    pub fn contains(&self, now: UnixMs) -> bool {
        let minutes = now.0.div_euclid(60_000) + self.offset_minutes;
        let (day, minute) = (minutes.div_euclid(MINUTES_A_DAY), minutes.rem_euclid(MINUTES_A_DAY));
        let on = |day: i64| {
            let weekday = usize::try_from((day + THURSDAY).rem_euclid(7)).unwrap_or_default();
            self.days.is_empty() || self.days.contains(&weekday)
        };
        if self.from <= self.to {
            on(day) && (self.from..self.to).contains(&minute)
        } else {
            (on(day) && minute >= self.from) || (on(day - 1) && minute < self.to)
        }
    }
}

/// Minutes of `HH:MM`, up to 24:00.
pub(super) fn minute_of_day(text: &str) -> Option<i64> {
    let (hours, minutes) = text.split_once(':')?;
    let part = |text: &str, most: i64| {
        let fits = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<i64>().ok().filter(|number| fits && *number <= most)
    };
    let minute = part(hours, 24)? * 60 + part(minutes, 59)?;
    (minute <= MINUTES_A_DAY).then_some(minute)
}

/// Minutes of `+HH:MM` or `-HH:MM`, up to 14 hours.
pub(super) fn offset(text: &str) -> Option<i64> {
    let (sign, rest) = match text.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    minute_of_day(rest).filter(|minutes| *minutes <= 14 * 60).map(|minutes| sign * minutes)
}
