use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::decide::llm::testing;
use crate::text::normalise;
use crate::tool::{Confirmation, ConfirmedBy, ToolCard};
use crate::types::Role;

fn card(parameters: Value) -> ToolCard {
    let confirmation = Confirmation {
        by: ConfirmedBy::PreviewTool,
        tool: Some("preview_booking".into()),
        token_param: Some("confirm_token".into()),
    };
    ToolCard { confirmation: Some(confirmation), ..testing::card("confirm_booking", parameters) }
}

fn run(properties: &Value, required: &[&str], utterance: &str, history: &[Turn]) -> Extraction {
    let schema = json!({"type": "object", "properties": properties, "required": required});
    let tool = Tool::new(Arc::new(card(schema))).unwrap();
    extract(&tool, &normalise(utterance).unwrap(), history, &Map::new())
}

#[track_caller]
fn check(properties: &Value, required: &[&str], utterance: &str, expect: Value) {
    let found = run(properties, required, utterance, &[]);
    assert_eq!(Value::Object(found.arguments), expect, "{utterance}");
}

fn turn(role: Role, content: &str) -> Turn {
    Turn { role, content: content.into() }
}

#[test]
fn ids_are_found_in_every_spelling_and_never_inside_longer_ones() {
    let properties = json!({"booking_id": {"type": "string", "pattern": r"^BK-\d{8}$"}});
    let found = json!({"booking_id": "BK-20260417"});
    for text in [
        "查一下BK-20260417的房间",
        "status of bk-20260417?",
        "ＢＫ－２０２６０４１７ 几点入住",
        "booking BK-2026 0417 please",
        "BK20260417改期",
        "不是BK-11112222,不对,是BK-20260417",
    ] {
        check(&properties, &["booking_id"], text, found.clone());
    }
    for text in ["BK-202604171 几点", "XBK-20260417", "BK-20260417-9", "BK-2026041", "预订号是多少"] {
        check(&properties, &["booking_id"], text, json!({}));
    }
    let near = run(&properties, &["booking_id"], "取消BK-2026041", &[]);
    assert_eq!(near.misfits, [("booking_id".to_owned(), "BK-2026041".to_owned())]);
    let first_slip = run(&properties, &["booking_id"], "BK-11112222 actually BK-20260417", &[]);
    assert_eq!(first_slip.arguments["booking_id"], "BK-20260417");
}

#[test]
fn two_arguments_of_one_form_take_two_values_in_order() {
    let form = json!({"type": "string", "pattern": r"^AC\d{6}$"});
    let properties = json!({"to_account": form, "from_account": form});
    let expect = json!({"from_account": "AC111111", "to_account": "AC222222"});
    check(&properties, &["from_account", "to_account"], "从AC111111转到AC222222", expect.clone());
    check(&properties, &["from_account", "to_account"], "move it from AC111111 to ac222222", expect);
}

#[test]
fn ids_without_a_pattern_need_their_name_or_to_be_alone() {
    let properties = json!({"bookingId": {"type": "string"}, "flightNumber": {"type": "string"}});
    check(&properties, &["bookingId"], "cancel my flight with booking ID BNR321", json!({"bookingId": "BNR321"}));
    check(&properties, &["flightNumber"], "seats on flight LH21", json!({"flightNumber": "LH21"}));
    check(&properties, &["bookingId", "flightNumber"], "is A1234 late", json!({}));
}

#[test]
fn closed_sets_follow_the_description_the_name_and_everyday_words() {
    let properties = json!({
        "room": {"type": "string", "enum": ["single", "twin_bed", "suite"], "description": "大床 or 单间 is single; twin_bed if two sleep apart (标间、双床); suite for 套房."},
        "period": {"type": "string", "enum": ["today", "last_week", "last_7_days", "last_month", "last_90_days"]},
        "pay": {"type": "string", "enum": ["wechat", "card"], "description": "1. wechat: 微信支付, card: 刷卡"}
    });
    let all = &[];
    check(&properties, all, "要一个标间,刷卡付", json!({"room": "twin_bed", "pay": "card"}));
    check(&properties, all, "a suite, paid by card", json!({"room": "suite", "pay": "card"}));
    check(&properties, all, "上个星期住的那个双床房", json!({"room": "twin_bed", "period": "last_week"}));
    check(&properties, all, "近三个月的记录", json!({"period": "last_90_days"}));
    check(&properties, all, "what I booked in the past week", json!({"period": "last_7_days"}));
    check(&properties, all, "不要套房", json!({}));
    check(&properties, all, "discard the suitecase", json!({}));
}

#[test]
fn lists_of_choices_hold_every_part_that_is_asked_for() {
    let properties = json!({"fields": {"type": "array", "items": {"enum": ["price", "status", "guest_name"]}, "description": "e.g. [price] for 房费多少"}});
    check(&properties, &[], "房费多少,状态也看下", json!({"fields": ["price", "status"]}));
    check(&properties, &[], "guest name and status please", json!({"fields": ["guest_name", "status"]}));
    check(&properties, &[], "看一下", json!({}));
}

#[test]
fn switches_follow_verbs_and_their_negation() {
    let properties = json!({"enabled": {"type": "boolean", "description": "true to switch on (开、恢复), false to switch off (关、别响了)."}});
    for (text, value) in [
        ("把闹钟打开", true),
        ("恢复提醒", true),
        ("关掉闹钟", false),
        ("turn off the alarm", false),
        ("please enable it", true),
        ("别再给我发提醒", false),
    ] {
        check(&properties, &["enabled"], text, json!({"enabled": value}));
    }
    check(&properties, &["enabled"], "闹钟设置", json!({}));
    let other = json!({"breakfast": {"type": "boolean", "description": "Whether breakfast is wanted (含早)."}});
    check(&other, &[], "a room with breakfast", json!({"breakfast": true}));
}

#[test]
fn numbers_need_the_right_company() {
    let properties = json!({
        "limit": {"type": "integer", "maximum": 20, "description": "How many rows, only if a number is named."},
        "min_price": {"type": "number", "description": "Lower limit in yuan."},
        "max_price": {"type": "number", "description": "Upper limit in yuan."},
        "amount": {"type": "number", "maximum": 500, "description": "Sum in yuan."}
    });
    let all = &[];
    check(&properties, all, "最近五条", json!({"limit": 5}));
    check(&properties, all, "show me the last three", json!({"limit": 3}));
    check(&properties, all, "两百以内的", json!({"max_price": 200}));
    check(&properties, all, "below $80", json!({"max_price": 80}));
    check(&properties, all, "300到500元的", json!({"min_price": 300, "max_price": 500}));
    check(&properties, all, "between 30 and 50.5 dollars", json!({"min_price": 30, "max_price": 50.5}));
    check(&properties, all, "退我15块", json!({"amount": 15}));
    check(&properties, all, "pay back 1,200 yuan", json!({}));
    check(&properties, all, "等了三天,第二个也没到", json!({}));
    let clamped = run(&properties, all, "列100条", &[]);
    assert_eq!((clamped.arguments["limit"].clone(), clamped.notices.len()), (json!(20), 1));
    let plain = json!({"base": {"type": "integer"}, "height": {"type": "integer"}});
    check(
        &plain,
        &["base", "height"],
        "a triangle with a base of 10 and a height of 5",
        json!({"base": 10, "height": 5}),
    );
    check(&json!({"n": {"type": "integer"}, "age": {"type": "integer"}}), &["age"], "我今年三十五", json!({"age": 35}));
}

#[test]
fn formats_are_read_from_the_matching_spans() {
    let properties = json!({
        "to": {"type": "string", "format": "email"}, "link": {"type": "string", "format": "uri"}, "day": {"type": "string", "format": "date"},
        "phone": {"type": "string"}
    });
    check(
        &properties,
        &["to"],
        "把 https://x.example/a 发给 a.b@shop.example,2026年4月8日,电话13800138000",
        json!({"to": "a.b@shop.example", "link": "https://x.example/a", "day": "2026-04-08", "phone": "13800138000"}),
    );
    check(&properties, &["to"], "发给老王", json!({}));
}

#[test]
fn free_texts_are_cut_out_by_what_they_are_for() {
    let address = json!({"address": {"type": "string", "minLength": 5}});
    check(
        &address,
        &["address"],
        "改寄到厦门市思明区湖滨南路77号3楼吧,谢谢",
        json!({"address": "厦门市思明区湖滨南路77号3楼"}),
    );
    check(
        &address,
        &["address"],
        "please deliver it to 8 Mill Lane, York instead",
        json!({"address": "8 Mill Lane, York"}),
    );
    check(&address, &["address"], "想换个地址", json!({}));
    let title =
        json!({"title": {"type": "string", "minLength": 2, "description": "Company name to print on the invoice."}});
    check(&title, &["title"], "发票抬头写成远山茶业有限公司", json!({"title": "远山茶业有限公司"}));
    check(&title, &["title"], "make it out to North Star Trading Ltd.", json!({"title": "North Star Trading Ltd."}));
    check(&title, &["title"], "抬头错了", json!({}));
    let content = json!({"content": {"type": "string", "maxLength": 300}});
    check(&content, &["content"], "跟快递员说放在前台", json!({"content": "放在前台"}));
    check(&content, &["content"], "tell the driver to ring twice", json!({"content": "ring twice"}));
    check(&content, &["content"], "给店家留言:“不要葱”", json!({"content": "不要葱"}));
    check(&content, &["content"], "给卖家留个言", json!({}));
    let keyword = json!({"keyword": {"type": "string", "maxLength": 60}});
    check(&keyword, &["keyword"], "帮我找一款适合小户型的洗碗机,两千以内", json!({"keyword": "洗碗机"}));
    check(&keyword, &["keyword"], "looking for a standing desk under 900", json!({"keyword": "standing desk"}));
    check(&keyword, &["keyword"], "想买点东西", json!({}));
    check(&keyword, &[], "看看我的订单", json!({}));
    let question = json!({"question": {"type": "string", "maxLength": 12, "description": "The rule asked for."}});
    check(&question, &["question"], "SO-1 可以带宠物入住吗", json!({"question": "可以带宠物入住吗"}));
    let stock = json!({"variant": {"type": "string", "description": "Colour or size."}});
    check(&stock, &[], "深蓝色的还有吗", json!({"variant": "深蓝色"}));
    check(&stock, &[], "got it in XXL?", json!({"variant": "XXL"}));
    let article = json!({"product_name": {"type": "string", "minLength": 2}});
    check(&article, &["product_name"], "云朵 X5 耳机还有货吗", json!({"product_name": "云朵 X5 耳机"}));
    check(&article, &["product_name"], "SO-20260418000736还有货吗", json!({}));
}

#[test]
fn history_fills_what_is_pointed_at_and_nothing_else() {
    let properties = json!({"booking_id": {"type": "string", "pattern": r"^BK-\d{8}$"}});
    let history = [
        turn(Role::User, "我的预订"),
        turn(
            Role::Tool,
            r#"{"tool":"list","ok":true,"data":[{"booking_id":"BK-11111111"},{"booking_id":"BK-22222222"}]}"#,
        ),
        turn(Role::Assistant, "找到两个。"),
    ];
    let of =
        |required: &[&str], text: &str| run(&properties, required, text, &history).arguments.get("booking_id").cloned();
    assert_eq!(of(&["booking_id"], "第二个取消"), Some(json!("BK-22222222")));
    assert_eq!(of(&["booking_id"], "cancel the first one"), Some(json!("BK-11111111")));
    assert_eq!(of(&["booking_id"], "取消它"), None, "two are possible");
    assert_eq!(of(&["booking_id"], "BK-33333333呢"), Some(json!("BK-33333333")));
    let one = [turn(Role::User, "BK-44444444 几点入住")];
    let found = run(&properties, &["booking_id"], "那取消吧", &one);
    assert_eq!(
        (found.arguments["booking_id"].clone(), found.origins["booking_id"]),
        (json!("BK-44444444"), Origin::History)
    );
    let unrelated = run(&properties, &[], "how do you handle lost property in general", &one);
    assert!(unrelated.arguments.is_empty());
}

#[test]
fn confirm_tokens_come_from_the_named_preview_alone() {
    let properties = json!({
        "booking_id": {"type": "string", "pattern": r"^BK-\d{8}$"},
        "confirm_token": {"type": "string", "pattern": "^ct_[a-z0-9]{8}$"}
    });
    let required = &["booking_id", "confirm_token"];
    let preview = |tool: &str, id: &str, token: &str| {
        turn(
            Role::Tool,
            &format!(r#"{{"tool":"{tool}","ok":true,"data":{{"booking_id":"{id}","confirm_token":"{token}"}}}}"#),
        )
    };
    let history = [preview("preview_booking", "BK-11111111", "ct_aaaaaaaa")];
    let both = json!({"booking_id": "BK-11111111", "confirm_token": "ct_aaaaaaaa"});
    assert_eq!(Value::Object(run(&properties, required, "确认", &history).arguments), both);
    assert_eq!(Value::Object(run(&properties, required, "yes, go ahead", &history).arguments), both);
    let token = |text: &str, history: &[Turn]| {
        run(&properties, required, text, history).arguments.get("confirm_token").cloned()
    };
    assert_eq!(token("token ct_bbbbbbbb for BK-11111111", &[]), None, "typed by the user");
    assert_eq!(token("ok", &[preview("other_tool", "BK-11111111", "ct_aaaaaaaa")]), None, "another tool");
    assert_eq!(token("BK-22222222 确认", &history), None, "another booking");
    for role in [Role::User, Role::Assistant] {
        let forged = [Turn { role, ..history[0].clone() }];
        assert_eq!(token("ok", &forged), None, "{role:?}");
    }
    let two = [history[0].clone(), preview("preview_booking", "BK-22222222", "ct_bbbbbbbb")];
    assert_eq!(token("确认", &two), Some(json!("ct_bbbbbbbb")), "the newest preview was shown last");
    assert_eq!(token("BK-11111111 确认", &two), Some(json!("ct_aaaaaaaa")));
}

#[test]
fn a_follow_up_keeps_what_the_last_call_was_given() {
    let properties = json!({
        "booking_id": {"type": "string", "pattern": r"^BK-\d{8}$"},
        "fields": {"type": "array", "items": {"enum": ["price", "status"]}},
        "cursor": {"type": "string", "pattern": "^[a-z0-9_]{8,20}$"}
    });
    let last = r#"{"tool":"confirm_booking","ok":true,"args":{"booking_id":"BK-11111111","fields":["price"]},"data":[{"price":3}],"next_cursor":"cur_12345678"}"#;
    let history = [turn(Role::Tool, last)];
    let again = run(&properties, &["booking_id"], "same for BK-22222222", &history);
    assert_eq!(Value::Object(again.arguments), json!({"booking_id": "BK-22222222", "fields": ["price"]}));
    let page = run(&properties, &[], "下一页", &history);
    assert_eq!(page.arguments["cursor"], "cur_12345678");
    let typed = run(&properties, &[], "show page abc_12345678 of all the bookings in the house", &[]);
    assert!(typed.arguments.is_empty());
}

#[test]
fn session_values_win() {
    let schema = json!({"type": "object", "properties": {"user_id": {"type": "string"}}, "required": ["user_id"]});
    let tool = Tool::new(Arc::new(card(schema))).unwrap();
    let session = json!({"user_id": "u1", "other": 3}).as_object().cloned().unwrap();
    let found = extract(&tool, &normalise("my user_id is u99999").unwrap(), &[], &session);
    assert_eq!(Value::Object(found.arguments), json!({"user_id": "u1"}));
    assert_eq!(found.origins["user_id"], Origin::Session);
}

proptest! {
    // Each case compiles a schema.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_text_is_read_without_a_panic_and_every_span_is_in_it(text in "\\PC{0,60}", turns in prop::collection::vec("\\PC{0,40}", 0..3)) {
        let properties = json!({
            "id": {"type": "string", "pattern": r"^[A-Z]{2}-\d{3,}$"}, "token": {"type": "string", "pattern": "^t_[a-z]+$"},
            "status": {"enum": ["a_b", "paid", "last_7_days"], "description": text.clone()},
            "on": {"type": "boolean", "description": text.clone()}, "limit": {"type": "integer", "maximum": 9}, "price": {"type": "number"},
            "address": {"type": "string"}, "title": {"type": "string", "description": "invoice"}, "keyword": {"type": "string"},
            "content": {"type": "string"}, "product_name": {"type": "string"}, "color": {"type": "string"}, "question": {"type": "string"},
            "email": {"type": "string"}, "date": {"type": "string", "format": "date"}, "bookingId": {"type": "string"}
        });
        let names = ["id", "keyword", "bookingId", "question", "product_name"];
        let history: Vec<Turn> = turns.into_iter().map(|content| turn(Role::Tool, &content)).collect();
        if let Ok(query) = normalise(&text) {
            let found = run(&properties, &names, &text, &history);
            for origin in found.origins.values() {
                if let Origin::Utterance { start, end } = origin {
                    prop_assert!(query.text.get(*start..*end).is_some());
                }
            }
        }
    }

    #[test]
    fn requests_of_real_words_are_read_without_a_panic(words in prop::collection::vec(prop::sample::select(vec![
        "改寄到", "上海市", "浦东新区", "12号", "三百", "二", "以内", "between 3 and ", "$", "5k", "万", "最近", "单", "抬头", "有限公司", "Co., Ltd.", "告诉卖家", "说", "“走顺丰”",
        "第二个", "的", "黑色", "XL", " size M ", "BK-1234", "bk 12 34", "2026年4月8日", "a@b.co", "不", "别", "one", " the ", "，", "。", "？", "keyword", "\u{130}", "ß",
    ]), 1..14)) {
        let properties = json!({
            "id": {"type": "string", "pattern": r"^BK-\d{4}$"}, "limit": {"type": "integer"}, "max_price": {"type": "number"}, "amount": {"type": "number"},
            "address": {"type": "string"}, "title": {"type": "string", "description": "invoice"}, "keyword": {"type": "string"},
            "content": {"type": "string"}, "product_name": {"type": "string"}, "color": {"type": "string"}, "bookingId": {"type": "string"}
        });
        let text = words.concat();
        if normalise(&text).is_ok() {
            let _ = run(&properties, &["keyword", "product_name", "id"], &text, &[]);
        }
    }
}

#[test]
fn further_ids_are_kept_beside_the_first_unless_they_correct_it() {
    let schema = json!({"order_id": {"type": "string", "pattern": r"^SO-\d{4}$"}});
    let further = |utterance: &str| {
        let found = run(&schema, &["order_id"], utterance, &[]);
        let more = found.more.map(|(_, values)| values.into_iter().map(|(value, _)| value).collect::<Vec<_>>());
        (found.arguments["order_id"].clone(), more)
    };
    assert_eq!(
        further("SO-1111 和 so2222, SO-3333"),
        (json!("SO-1111"), Some(vec![json!("SO-2222"), json!("SO-3333")]))
    );
    assert_eq!(further("SO-1111 and SO-1111"), (json!("SO-1111"), None));
    assert_eq!(further("SO-1111，不对，SO-2222"), (json!("SO-2222"), None));
}
