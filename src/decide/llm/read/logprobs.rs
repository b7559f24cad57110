//! How probable the model held the name it chose, among the names it could have chosen.
//!
//! Owns: finding the tokens that spell a name, weighing their alternatives.
//! Does not know: what the probability is used for.
//!
//! Endpoints report probabilities before a grammar forbids anything, so most of the mass may lie on words that were
//! never on offer. It is renormalised token by token over the names that can still follow: an alternative counts for
//! the chosen name if it begins it or goes on from it, against it if it does so with another name, and not at all
//! otherwise. The product over the tokens until only the chosen name is left is its probability.
//!
//! Numbers come from outside: anything missing, not a number or above 0 gives no probability rather than a wrong one.

use serde_json::Value;

/// Tokens of one answer and alternatives of one token beyond which nothing is read.
const MAX_TOKENS: usize = 4_096;
const MAX_ALTERNATIVES: usize = 32;
/// Under which keys answers name their choice.
const KEYS: [&str; 3] = ["\"action\"", "\"tool\"", "\"name\""];

struct Token {
    bytes: Vec<u8>,
    probability: f64,
    alternatives: Vec<(Vec<u8>, f64)>,
}

/// Probability of the names `chosen` in the answer's order, the least of them where there are several, renormalised
/// over `names`. `None` where the endpoint does not tell, or not all of it.
pub(crate) fn choice_probability(body: &Value, chosen: &[&str], names: &[&str]) -> Option<f32> {
    let content = body.pointer("/choices/0/logprobs/content")?.as_array()?;
    if chosen.is_empty() || content.len() > MAX_TOKENS {
        return None;
    }
    let tokens = content.iter().map(token).collect::<Option<Vec<_>>>()?;
    let text: Vec<u8> = tokens.iter().flat_map(|token| token.bytes.iter().copied()).collect();
    let mut from = find(&text, b"</think>").map_or(0, |at| at + b"</think>".len());
    let mut least: f64 = 1.0;
    for name in chosen {
        let start = spelled_at(&text, name, from)?;
        least = least.min(probability_at(&tokens, start, name, names)?);
        from = start + name.len();
    }
    Some(least.clamp(0.0, 1.0) as f32)
}

fn token(value: &Value) -> Option<Token> {
    let alternatives = value.get("top_logprobs").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    Some(Token {
        bytes: bytes(value)?,
        probability: probability(value)?,
        alternatives: alternatives
            .iter()
            .take(MAX_ALTERNATIVES)
            .map(|alternative| Some((bytes(alternative)?, probability(alternative)?)))
            .collect::<Option<_>>()?,
    })
}

/// A token may be half a character, so its bytes count where they are given.
fn bytes(value: &Value) -> Option<Vec<u8>> {
    let text = value.get("token")?.as_str()?;
    match value.get("bytes").and_then(Value::as_array) {
        Some(bytes) => bytes.iter().map(|byte| u8::try_from(byte.as_u64()?).ok()).collect(),
        None => Some(text.as_bytes().to_vec()),
    }
}

fn probability(value: &Value) -> Option<f64> {
    let logprob = value.get("logprob")?.as_f64()?;
    (logprob <= 0.0).then(|| logprob.exp())
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

/// Where `"<key>": "<name>"` has its name.
fn spelled_at(text: &[u8], name: &str, mut from: usize) -> Option<usize> {
    loop {
        let at = from + text.get(from..)?.iter().position(|byte| *byte == b'"')?;
        let Some(key) = KEYS.iter().find(|key| text[at..].starts_with(key.as_bytes())) else {
            from = at + 1;
            continue;
        };
        from = at + key.len();
        let skip_space = |mut at: usize| {
            while text.get(at).is_some_and(u8::is_ascii_whitespace) {
                at += 1;
            }
            at
        };
        let colon = skip_space(from);
        let quote = skip_space(colon + 1);
        let value = text.get(quote + 1..).unwrap_or_default();
        let is_value = text.get(colon) == Some(&b':') && text.get(quote) == Some(&b'"');
        if is_value && value.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'"')) {
            return Some(quote + 1);
        }
    }
}

fn probability_at(tokens: &[Token], start: usize, name: &str, names: &[&str]) -> Option<f64> {
    // With its closing quote no name is the beginning of another one.
    let whole = |name: &str| format!("{name}\"").into_bytes();
    let chosen = whole(name);
    let mut others: Vec<Vec<u8>> = names.iter().filter(|other| **other != name).map(|other| whole(other)).collect();
    if others.len() == names.len() {
        return None; // not one of the names on offer
    }
    let mut offset = 0;
    let (mut spelled, mut probability) = (0, 1.0);
    for token in tokens {
        let lead = start.saturating_sub(offset).min(token.bytes.len());
        offset += token.bytes.len();
        if offset <= start {
            continue;
        }
        others.retain(|other| other.starts_with(&chosen[..spelled]));
        if others.is_empty() {
            return Some(probability);
        }
        probability *= step(token, lead, &chosen[spelled..], &others, spelled)?;
        spelled += token.bytes.len() - lead;
        if spelled >= chosen.len() {
            return Some(probability);
        }
    }
    None
}

/// The share of the chosen name's next part among all parts that go on with a name on offer.
fn step(token: &Token, lead: usize, rest: &[u8], others: &[Vec<u8>], spelled: usize) -> Option<f64> {
    let fits = |part: &[u8], rest: &[u8]| rest.starts_with(part) || part.starts_with(rest);
    if token.alternatives.is_empty() {
        return None;
    }
    let (mut good, mut against) = (token.probability, 0.0);
    for (bytes, probability) in token.alternatives.iter().filter(|(bytes, _)| *bytes != token.bytes) {
        // An alternative that ends before the name begins says nothing about it.
        let Some(part) = bytes.strip_prefix(&token.bytes[..lead]).filter(|part| !part.is_empty()) else { continue };
        let fitting = others.iter().filter(|other| fits(part, &other[spelled..])).count();
        match fits(part, rest) {
            true if fitting < others.len() => good += probability,
            false if fitting > 0 => against += probability,
            true | false => {}
        }
    }
    (good > 0.0).then(|| good / (good + against))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const NAMES: [&str; 5] = ["get_order", "get_logistics", "preview_refund", "no_tool", "ask_user"];

    /// Tokens with the probabilities of their alternatives; the first alternative is the token itself.
    fn body(tokens: &[&[(&str, f64)]]) -> Value {
        let entry = |(text, p): &(&str, f64)| json!({"token": text, "logprob": p.ln()});
        let content: Vec<Value> = tokens
            .iter()
            .map(|alternatives| {
                let mut token = entry(&alternatives[0]);
                token["top_logprobs"] = alternatives.iter().map(entry).collect();
                token
            })
            .collect();
        json!({"choices": [{"logprobs": {"content": content}}]})
    }

    #[track_caller]
    fn check(tokens: &[&[(&str, f64)]], chosen: &[&str], expect: Option<f64>) {
        let found = choice_probability(&body(tokens), chosen, &NAMES).map(|p| (f64::from(p) * 1e3).round() / 1e3);
        assert_eq!(found, expect);
    }

    #[test]
    fn the_first_token_that_tells_is_renormalised_over_the_names() {
        let head: &[(&str, f64)] = &[("{\"tool\":", 0.9)];
        check(
            &[head, &[(" \"no", 0.2), (" \"ask", 0.1), (" \"hello", 0.7)], &[("_tool\"}", 1.0)]],
            &["no_tool"],
            Some(0.667),
        );
        // `get` begins two names: what follows tells them apart.
        let get: &[(&str, f64)] = &[("get", 0.6), ("preview", 0.2), ("g", 0.1)];
        check(
            &[head, &[(" \"", 1.0)], get, &[("_log", 0.3), ("_order", 0.1), (" log", 0.5)], &[("istics\"}", 0.9)]],
            &["get_logistics"],
            Some(0.583),
        );
        // Another way to cut the same name counts for it, and the opening quote alone says nothing.
        check(
            &[head, &[("\"ask", 0.3), ("\"a", 0.1), ("\"", 0.4), ("\"no", 0.4)], &[("_user\"", 1.0)]],
            &["ask_user"],
            Some(0.5),
        );
    }

    #[test]
    fn a_name_that_begins_another_one_is_told_apart_by_its_end() {
        let names = ["get", "get_all"];
        let tokens = body(&[&[("{\"tool\":\"get", 0.9), ("{\"tool\":\"x", 0.1)], &[("\"}", 0.3), ("_all", 0.1)]]);
        assert_eq!(choice_probability(&tokens, &["get"], &names), Some(0.75));
    }

    #[test]
    fn of_several_choices_the_least_probable_counts() {
        let tokens: &[&[(&str, f64)]] = &[
            &[("{\"calls\":[{\"action\":\"", 1.0)],
            &[("get_order", 0.8), ("no_tool", 0.2)],
            &[("\",\"arguments\":{\"tool\":\"get_order\"}},{\"action\": \"", 1.0)],
            &[("no_tool", 0.4), ("get_order", 0.6)],
            &[("\"}]}", 1.0)],
        ];
        check(tokens, &["get_order", "no_tool"], Some(0.4));
        check(tokens, &["no_tool", "get_order"], None);
    }

    #[test]
    fn bodies_of_a_real_endpoint() {
        let check = |body: &str, name: &str, expect: f32| {
            let found = choice_probability(&serde_json::from_str(body).unwrap(), &[name], &NAMES).unwrap();
            assert!((found - expect).abs() < 0.01, "{name}: {found} instead of {expect}");
        };
        // Each begins with a fence that is not in the message.
        check(include_str!("../../../../tests/data/logprobs/choose-en.json"), "get_logistics", 0.96);
        check(include_str!("../../../../tests/data/logprobs/choose-zh.json"), "get_order", 0.67);
        check(include_str!("../../../../tests/data/logprobs/json-zh.json"), "preview_refund", 0.52);
    }

    #[test]
    fn what_cannot_be_read_gives_no_probability() {
        let good: &[&[(&str, f64)]] =
            &[&[("{\"tool\":\"", 1.0)], &[("no_tool", 0.5), ("ask_user", 0.5)], &[("\"}", 1.0)]];
        check(good, &["no_tool"], Some(0.5));
        check(good, &[], None);
        check(good, &["python"], None);
        check(&good[..2], &["no_tool"], None);
        let broken = [
            ("/choices/0/logprobs", json!(null)),
            ("/choices/0/logprobs/content", json!("x")),
            ("/choices/0/logprobs/content/1", json!(null)),
            ("/choices/0/logprobs/content/1/logprob", json!(null)),
            ("/choices/0/logprobs/content/1/logprob", json!("-1")),
            ("/choices/0/logprobs/content/1/logprob", json!(0.5)),
            ("/choices/0/logprobs/content/1/logprob", json!(-1e9)),
            ("/choices/0/logprobs/content/1/bytes", json!([300])),
            ("/choices/0/logprobs/content/1/top_logprobs", json!([])),
            ("/choices/0/logprobs/content/1/top_logprobs/1/logprob", json!(1)),
            ("/choices/0/logprobs/content/1/top_logprobs/1", json!(7)),
        ];
        for (pointer, value) in broken {
            let mut body = body(good);
            *body.pointer_mut(pointer.rsplit_once('/').unwrap().0).unwrap() = {
                let mut parent = body.pointer(pointer.rsplit_once('/').unwrap().0).unwrap().clone();
                let key = pointer.rsplit_once('/').unwrap().1;
                match key.parse::<usize>() {
                    Ok(index) => parent[index] = value.clone(),
                    Err(_) => parent[key] = value.clone(),
                }
                parent
            };
            assert_eq!(choice_probability(&body, &["no_tool"], &NAMES), None, "{pointer} = {value}");
        }
        assert_eq!(choice_probability(&json!({}), &["no_tool"], &NAMES), None);
    }

    proptest! {
        #[test]
        fn any_tokens_give_a_probability_or_none(tokens in prop::collection::vec(("[a-z_\":{ ]{0,9}", -20.0..0.1f64), 0..12), name in 0..5usize) {
            let content: Vec<Value> = tokens
                .iter()
                .map(|(text, logprob)| json!({"token": text, "logprob": logprob, "top_logprobs": [{"token": "no", "logprob": logprob}]}))
                .collect();
            let body = json!({"choices": [{"logprobs": {"content": content}}]});
            if let Some(p) = choice_probability(&body, &[NAMES[name]], &NAMES) {
                prop_assert!((0.0..=1.0).contains(&p));
            }
        }
    }
}
