//! The states of a call: which may follow which, and what time alone does to one.
//!
//! Owns: the one table of transitions.
//! Does not know: who asks for a transition, or where records are kept.

use std::time::Duration;

use serde_json::Value;

use super::Ending;
use crate::store::CallRow;
use crate::tool::SideEffect;
use crate::types::{CallState, Problem, ProblemCode, UnixMs};

use CallState::{Cancelled, Confirmed, Dispatched, EffectUnknown, Expired, Failed, Previewed, Proposed, Succeeded};

/// What may follow each state at once.
pub(super) fn successors(state: CallState) -> &'static [CallState] {
    match state {
        Proposed => &[Previewed, Dispatched, Expired, Cancelled],
        Previewed => &[Confirmed, Expired, Cancelled],
        Confirmed => &[Dispatched, Expired, Cancelled],
        // Back to where it came from: nothing was sent, so consent and key are free again.
        Dispatched => &[Succeeded, Failed, EffectUnknown, Proposed, Confirmed],
        // A truthful report that comes late.
        EffectUnknown => &[Succeeded, Failed, Proposed, Confirmed],
        Succeeded | Failed | Expired | Cancelled => &[],
    }
}

/// Leads `row` along `path`, each step of which the table has to allow. False leaves it as it is.
pub(super) fn advance(row: &mut CallRow, path: &[CallState], now: UnixMs) -> bool {
    let mut state = row.state;
    for next in path {
        if !successors(state).contains(next) {
            return false;
        }
        state = *next;
    }
    row.state = state;
    row.updated = now;
    true
}

/// The call as it stands at `now`: consent that came too late has expired, and a call whose lease has passed may have
/// taken effect. Nobody has to write that down for it to be true.
pub(super) fn as_of(mut row: CallRow, now: UnixMs) -> CallRow {
    if row.until > now {
        return row;
    }
    match row.state {
        Proposed | Previewed | Confirmed => row.state = Expired,
        Dispatched => {
            let (state, ending) = lease_passed(row.facts.class);
            row.state = state;
            row.facts.ending = serde_json::to_value(ending).ok();
            row.updated = row.until;
            row.until = row.until.plus(Duration::from_millis(row.facts.ttl_ms));
        }
        Succeeded | Failed | EffectUnknown | Expired | Cancelled => {}
    }
    row
}

/// Whether the call still stands for its key at `now`. `row` is [as of](as_of) that time.
pub(super) fn is_live(row: &CallRow, now: UnixMs) -> bool {
    match row.state {
        Proposed | Previewed | Confirmed | Dispatched => true,
        Succeeded | Failed | EffectUnknown => row.until > now,
        Expired | Cancelled => false,
    }
}

fn lease_passed(class: SideEffect) -> (CallState, Ending) {
    match class {
        SideEffect::Read => {
            let message = "no report came within the tool's time";
            (Failed, Ending::Failed(Problem::passing("timeout", ProblemCode::Timeout, message)))
        }
        SideEffect::Write | SideEffect::Destructive => {
            let message = "the call was let go and no report came within the tool's time: it may have taken effect";
            (EffectUnknown, Ending::EffectUnknown(Problem::refused("unknown", ProblemCode::EffectUnknown, message)))
        }
    }
}

/// How the call ended, as far as it is kept.
pub(super) fn ending(row: &CallRow) -> Option<Ending> {
    row.facts.ending.clone().and_then(|ending: Value| serde_json::from_value(ending).ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::gate::testing::row;

    fn any_state() -> impl Strategy<Value = CallState> {
        prop::sample::select(CallState::ALL.to_vec())
    }

    proptest! {
        /// Whatever is tried in whatever order, the effect is never let go without the steps before it.
        #[test]
        fn only_listed_steps_are_taken(tried in prop::collection::vec(any_state(), 0..40)) {
            let mut call = row(Proposed);
            let mut went = vec![Proposed];
            for (at, next) in tried.into_iter().enumerate() {
                let before = call.clone();
                let now = UnixMs(at as i64);
                if advance(&mut call, &[next], now) {
                    prop_assert!(successors(before.state).contains(&next));
                    prop_assert_eq!((call.state, call.updated), (next, now));
                    went.push(next);
                } else {
                    prop_assert_eq!(&call, &before);
                }
            }
            let confirmed_before_sent = went.windows(2).all(|pair| pair != [Previewed, Dispatched]);
            let ended = |state: &CallState| matches!(state, Succeeded | Failed | Expired | Cancelled);
            prop_assert!(confirmed_before_sent);
            prop_assert!(went.iter().position(ended).is_none_or(|at| at + 1 == went.len()), "{:?}", went);
        }

        #[test]
        fn a_path_is_taken_whole_or_not_at_all(from in any_state(), path in prop::collection::vec(any_state(), 0..4)) {
            let mut call = row(from);
            let states: Vec<CallState> = std::iter::once(from).chain(path.iter().copied()).collect();
            let allowed = states.windows(2).all(|pair| successors(pair[0]).contains(&pair[1]));
            prop_assert_eq!(advance(&mut call, &path, UnixMs(9)), allowed);
            prop_assert_eq!(call.state, if allowed { *states.last().unwrap() } else { from });
        }

        #[test]
        fn time_alone_never_undoes_or_lets_go(state in any_state(), until in 0i64..200, now in 0i64..200, later in 0i64..200) {
            let mut call = row(state);
            call.until = UnixMs(until);
            let seen = as_of(call.clone(), UnixMs(now));
            let stays_or_ends = seen.state == state || matches!(seen.state, Expired | EffectUnknown | Failed);
            prop_assert!(stays_or_ends);
            prop_assert!(seen.state != Dispatched || state == Dispatched);
            // Looking twice changes nothing more at the same moment.
            prop_assert_eq!(as_of(seen.clone(), UnixMs(now)), seen.clone());
            // What time has ended stays ended.
            if seen.state != state {
                prop_assert_eq!(as_of(call, UnixMs(now + later)).state, seen.state);
            }
        }
    }

    #[test]
    fn a_lease_that_passed_is_unknown_for_writes_and_a_timeout_for_reads() {
        for (class, state, code) in [
            (SideEffect::Write, EffectUnknown, ProblemCode::EffectUnknown),
            (SideEffect::Destructive, EffectUnknown, ProblemCode::EffectUnknown),
            (SideEffect::Read, Failed, ProblemCode::Timeout),
        ] {
            let mut call = row(Dispatched);
            call.until = UnixMs(10);
            call.facts.class = class;
            assert_eq!(as_of(call.clone(), UnixMs(9)).state, Dispatched);
            let late = as_of(call, UnixMs(10));
            assert_eq!(late.state, state);
            let (Ending::Failed(problem) | Ending::EffectUnknown(problem)) = ending(&late).unwrap() else {
                panic!("{late:?}")
            };
            assert_eq!(problem.code, code);
            assert!(is_live(&late, UnixMs(10)) && !is_live(&late, late.until));
        }
    }
}
