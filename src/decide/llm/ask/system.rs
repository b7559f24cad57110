//! The system text: a role, the rules its question needs, what is given, the form of the answer.

use super::super::AnswerMode;
use super::shortlist::Shortlist;
use super::wording::Wording;

/// For the question which tool.
pub(super) fn route(max_calls: usize, list: &Shortlist<'_>, mode: AnswerMode, wording: &Wording) -> String {
    let calls = if max_calls <= 1 { &wording.one_call } else { &wording.many_calls };
    let (role, rules, form): (_, &[&str], &[&str]) = match mode {
        AnswerMode::Functions => {
            (&wording.role_route, &[&wording.choose, &wording.fill], &[calls, &wording.form_functions])
        }
        AnswerMode::JsonSchema => {
            let form = if max_calls <= 1 { &wording.form_json_one } else { &wording.form_json_many };
            (&wording.role_route, &[&wording.choose, &wording.fill], &[calls, form])
        }
        AnswerMode::ChooseThenFill => (&wording.role_choose, &[&wording.choose_only], &[&wording.form_choose]),
    };
    text(role, rules, form, list, wording).replace("{max_calls}", &max_calls.to_string())
}

/// For the question which arguments.
pub(super) fn fill(list: &Shortlist<'_>, wording: &Wording) -> String {
    text(&wording.role_fill, &[&wording.fill], &[&wording.form_fill], list, wording)
}

fn text(role: &str, rules: &[&str], form: &[&str], list: &Shortlist<'_>, wording: &Wording) -> String {
    let mut parts = vec![role.to_owned()];
    parts.extend(rules.iter().map(|rule| rule.trim_end().to_owned()));
    parts.push(wording.given.trim_end().to_owned());
    let form = form.iter().map(|line| format!("\n- {line}")).collect::<String>();
    parts.push(format!("{}{form}", wording.answer));
    parts.join("\n\n").replace("{none}", &list.none).replace("{ask}", &list.ask)
}
