//! Tokens of an exchange whose endpoint does not count them: an estimate, so that budgets and quotas hold there too.

use serde_json::{Map, Value};

use super::super::read::{Arguments, Completion};
use crate::decision::TokenUse;
use crate::text::estimate_tokens;

pub(crate) const NOTE: &str = "the endpoint reports no token use; it is estimated";

/// What `body` and the answer to it amount to.
pub(crate) fn estimate(body: &Map<String, Value>, completion: &Completion) -> TokenUse {
    let call = |arguments: &Arguments| match arguments {
        Arguments::Object(map) => tokens(&to_text(map)),
        Arguments::Unreadable(text) => tokens(text),
    };
    let calls = completion.calls.iter().map(|it| tokens(&it.name).saturating_add(call(&it.arguments)));
    let completion = calls.fold(tokens(&completion.text), u32::saturating_add);
    TokenUse { prompt: tokens(&to_text(body)), completion }
}

fn to_text(map: &Map<String, Value>) -> String {
    serde_json::to_string(map).expect("a map of JSON values is JSON")
}

fn tokens(text: &str) -> u32 {
    u32::try_from(estimate_tokens(text)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_languages_cost_something() {
        let body = Map::from_iter([("m".to_owned(), Value::from("我的订单"))]);
        let completion = Completion { text: "好的".into(), ..Completion::default() };
        assert_eq!(estimate(&body, &completion), TokenUse { prompt: 7, completion: 2 });
    }
}
