//! What a caller asks: from the wire, checked.

use super::json::{NotJson, from_struct};
use crate::pipeline::{Narrowing, RouteRequest};
use crate::server::proto;
use crate::types::{FieldProblem, Problem, Role, Turn};

const MAX_TURNS: usize = 1000;
const MAX_NARROWING: usize = 10_000;
const MAX_CALLS: u32 = 100;
pub(super) const MAX_ID_BYTES: usize = 512;

/// # Errors
/// A [`Problem`] naming the field by its path in the message, such as `history[2].role`.
pub fn route_request(request: proto::RouteRequest) -> Result<RouteRequest, Problem> {
    at_most("history", request.history.len(), MAX_TURNS, "turns")?;
    at_most("session_id", request.session_id.len(), MAX_ID_BYTES, "bytes")?;
    let options = request.options.unwrap_or_default();
    at_most("options.max_calls", options.max_calls as usize, MAX_CALLS as usize, "calls")?;
    let state = request.session_state.map(|state| from_struct(state, "session_state")).transpose();
    Ok(RouteRequest {
        utterance: request.utterance,
        history: request
            .history
            .into_iter()
            .enumerate()
            .map(|(i, turn)| self::turn(i, turn))
            .collect::<Result<_, _>>()?,
        session_id: request.session_id,
        session_state: state.map_err(not_json)?.unwrap_or_default(),
        narrowing: narrowing(request.narrowing.unwrap_or_default())?,
        no_cache: options.no_cache,
        max_calls: options.max_calls as usize,
        pending: Some(request.pending).filter(|pending| !pending.is_empty()),
        trace_id: None,
    })
}

fn turn(position: usize, turn: proto::Turn) -> Result<Turn, Problem> {
    let role = match proto::turn::Role::try_from(turn.role) {
        Ok(proto::turn::Role::User) => Role::User,
        Ok(proto::turn::Role::Assistant) => Role::Assistant,
        Ok(proto::turn::Role::Tool) => Role::Tool,
        Ok(proto::turn::Role::Unspecified) | Err(_) => {
            let expected = "ROLE_USER (1), ROLE_ASSISTANT (2) or ROLE_TOOL (3)";
            return Err(invalid(format!("history[{position}].role"), format!("unknown role {}", turn.role), expected));
        }
    };
    Ok(Turn { role, content: turn.content })
}

fn narrowing(narrowing: proto::Narrowing) -> Result<Narrowing, Problem> {
    at_most("narrowing.domains", narrowing.domains.len(), MAX_NARROWING, "entries")?;
    at_most("narrowing.tags", narrowing.tags.len(), MAX_NARROWING, "entries")?;
    at_most("narrowing.tools", narrowing.tools.len(), MAX_NARROWING, "entries")?;
    Ok(Narrowing { domains: narrowing.domains, tags: narrowing.tags, tools: narrowing.tools })
}

pub(super) fn at_most(path: &str, got: usize, most: usize, unit: &str) -> Result<(), Problem> {
    if got > most {
        return Err(invalid(path, format!("{got} {unit} are too many"), &format!("at most {most}")));
    }
    Ok(())
}

pub(super) fn not_json(error: NotJson) -> Problem {
    invalid(error.path, "cannot be used", &error.expected)
}

pub(super) fn invalid(path: impl Into<String>, message: impl Into<String>, expected: &str) -> Problem {
    let field = FieldProblem { path: path.into(), expected: expected.into(), example: None };
    Problem::invalid_request(message, vec![field])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(roles: &[i32]) -> Vec<proto::Turn> {
        roles.iter().map(|&role| proto::Turn { role, content: "那就退了吧".into() }).collect()
    }

    fn path_of(request: proto::RouteRequest) -> String {
        route_request(request).unwrap_err().fields.remove(0).path
    }

    #[test]
    fn a_whole_request_arrives() {
        let request = route_request(proto::RouteRequest {
            utterance: "refund my order".into(),
            history: turns(&[1, 2, 3]),
            session_id: "s-1".into(),
            pending: String::new(),
            options: Some(proto::RouteOptions { no_cache: true, max_calls: 3 }),
            narrowing: Some(proto::Narrowing { domains: vec!["refunds".into()], ..Default::default() }),
            ..Default::default()
        })
        .unwrap();
        assert_eq!(
            request.history.iter().map(|turn| turn.role).collect::<Vec<_>>(),
            [Role::User, Role::Assistant, Role::Tool]
        );
        assert_eq!((request.no_cache, request.max_calls, request.pending), (true, 3, None));
        assert_eq!(request.narrowing.domains, ["refunds"]);
    }

    #[test]
    fn enum_numbers_from_the_wire_are_checked() {
        for role in [0, 4, -1, i32::MAX] {
            let request = proto::RouteRequest { history: turns(&[1, 2, role]), ..Default::default() };
            assert_eq!(path_of(request), "history[2].role", "{role}");
        }
    }

    #[test]
    fn lengths_from_the_wire_are_checked() {
        assert_eq!(path_of(proto::RouteRequest { history: turns(&[1; 1001]), ..Default::default() }), "history");
        let tags = proto::Narrowing { tags: vec![String::new(); 10_001], ..Default::default() };
        assert_eq!(path_of(proto::RouteRequest { narrowing: Some(tags), ..Default::default() }), "narrowing.tags");
        assert_eq!(path_of(proto::RouteRequest { session_id: "x".repeat(513), ..Default::default() }), "session_id");
        let options = proto::RouteOptions { max_calls: u32::MAX, ..Default::default() };
        assert_eq!(path_of(proto::RouteRequest { options: Some(options), ..Default::default() }), "options.max_calls");
    }
}
