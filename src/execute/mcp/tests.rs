use rmcp::model::ErrorData;

use super::*;

#[track_caller]
fn check(result: Value, max: usize, body: Body, failed: bool, cut: bool) {
    let answer = read(serde_json::from_value(result).unwrap(), max);
    assert_eq!(answer, ToolAnswer { status: None, body, failed, cut, retry_after_ms: None });
}

#[test]
fn structured_content_comes_first_then_texts_as_json_or_words() {
    let text = |text: &str| json!({"type": "text", "text": text});
    let order = json!({"order_id": "SO-1", "状态": 30});
    check(json!({"content": [text("x")], "structuredContent": order}), 1_000, Body::Json(order.clone()), false, false);
    check(json!({"content": [text(&order.to_string())]}), 1_000, Body::Json(order), false, false);
    check(json!({"content": [text("没有"), text("none")]}), 1_000, Body::Text("没有\nnone".into()), false, false);
    check(json!({"content": []}), 1_000, Body::Empty, false, false);
    check(json!({"content": [text("at x.java")], "isError": true}), 1_000, Body::Text("at x.java".into()), true, false);
    let embedded = json!({"type": "resource", "resource": {"uri": "a://b", "text": "[1]"}});
    let picture = json!({"type": "image", "data": "QUJD", "mimeType": "image/png"});
    check(json!({"content": [picture, embedded]}), 1_000, Body::Json(json!([1])), false, false);
}

#[test]
fn long_results_are_cut_at_whole_characters() {
    check(json!({"content": [{"type": "text", "text": "退款退款"}]}), 7, Body::Text("退款".into()), false, true);
    check(json!({"content": [], "structuredContent": {"a": [1, 2]}}), 5, Body::Text("{\"a\":".into()), false, true);
}

#[test]
fn protocol_errors_are_answers_of_which_some_say_the_server_is_unwell() {
    for (code, unwell) in [(-32602, false), (-32601, false), (-32603, true), (-32000, true), (1, false)] {
        let error: ErrorData = serde_json::from_value(json!({"code": code, "message": "m", "data": "trace"})).unwrap();
        let Attempt::Answered(found) = failed(&ServiceError::McpError(error)) else { panic!() };
        assert_eq!((found.unwell, found.answer.failed), (unwell, true), "{code}");
        assert_eq!(found.answer.body, Body::Json(json!({"code": code, "message": "m"})));
    }
    assert!(matches!(failed(&ServiceError::TransportClosed), Attempt::Lost(Loss::Broken)));
    assert!(matches!(failed(&ServiceError::UnexpectedResponse), Attempt::Lost(Loss::Unreadable)));
}
