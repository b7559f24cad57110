//! Side effects.

use pointsman::registry;
use pointsman::tool::SideEffect;
use serde_json::json;

use crate::support::shop::{Shop, the_call, uncached};
use crate::support::{RegistryFile, native};

#[test]
fn sb_104_there_are_three_levels() {
    for level in ["read", "write", "destructive"] {
        let file = RegistryFile::new("registry.yaml", &native(&["get_order"]).replace("read", level));
        let loaded = registry::load(std::slice::from_ref(&file.path), &[]).unwrap();
        let classes: Vec<&str> = loaded.cards.values().map(|card| card.side_effect.as_str()).collect();
        assert_eq!(classes, [level]);
    }
    let file = RegistryFile::new("registry.yaml", &native(&["get_order"]).replace("read", "update"));
    let loaded = registry::load(std::slice::from_ref(&file.path), &[]).unwrap();
    assert!(loaded.cards.is_empty());
    let report = loaded.quarantined[0].to_string();
    for word in ["get_order", "side_effect", "read, write, destructive", "update"] {
        assert!(report.contains(word), "{word}: {report}");
    }
}

#[tokio::test]
async fn sb_105_reading_needs_no_confirmation() {
    let shop = Shop::start(&[]).await;
    let decision = shop.route("我有多少积分呀").await;
    let call = the_call(&decision);
    assert_eq!((call.tool.as_str(), call.side_effect), ("get_account_overview", SideEffect::Read));
    assert!(!call.needs_confirmation);
}

#[tokio::test]
async fn sb_116_dangerous_tools_wait_for_consent_to_these_arguments() {
    let shop = Shop::start(&[]).await;
    let coupon = json!({"coupon_type": "free_shipping", "reason": "late_delivery"});
    let message = json!({"order_id": "SO-20260418000736", "recipient": "courier", "content": "放门口就行"});
    for (utterance, tool, shown) in [
        ("晚到这么久，给我一张运费券", "issue_coupon", coupon),
        ("跟SO-20260418000736的快递员说放门口就行", "send_message", message),
    ] {
        let decision = shop.ask(uncached(utterance)).await;
        let call = the_call(&decision);
        assert_eq!((call.tool.as_str(), call.side_effect), (tool, SideEffect::Destructive));
        assert!(call.needs_confirmation, "{utterance}");
        assert_eq!(json!(call.arguments), shown, "{utterance}");
    }
}
