//! The operator's policy over a real server: the sample file, a change of it, a fault in it.

use pointsman::gate::Policy;
use pointsman::server::proto::invoke_response::Verdict;
use pointsman::server::proto::{AuthorizeRequest, DeleteRequest, ReloadRequest, Wish, authorize_response};
use pointsman::types::Scope;
use serde_json::{Value, json};
use tempfile::TempDir;
use tonic::Code;

use crate::gate::{invoke, refused, wish};
use crate::support::server::{TestServer, settings};

const ORDER: &str = "SO-20260420000151";

/// A server over the sample cards, ruled by a copy of the sample policy.
struct Ruled {
    server: TestServer,
    folder: TempDir,
}

impl Ruled {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("policy.yaml");
        std::fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/shop/policy.yaml"), &path).unwrap();
        let mut settings = settings(&[crate::support::shop()]);
        settings.pipeline.policy = Some(path);
        // Not those of the lead, whom the policy does not limit.
        let held = ["orders:read", "orders:write", "refunds:read", "messages:send"];
        settings.server.identity.scopes = Some(held.map(|scope| Scope(scope.into())).to_vec());
        Self { server: TestServer::start(settings).await, folder }
    }

    fn write(&self, text: &str) {
        std::fs::write(self.folder.path().join("policy.yaml"), text).unwrap();
    }

    async fn ask(&self, tool: &str, arguments: Value) -> authorize_response::Verdict {
        let request = AuthorizeRequest { wish: Some(wish(tool, arguments)) };
        self.server.gate().authorize(request).await.unwrap().into_inner().verdict.unwrap()
    }
}

#[tokio::test]
async fn the_sample_policy_denies_asks_and_lets_pass() {
    let ruled = Ruled::start().await;
    let message = json!({"order_id": ORDER, "recipient": "seller", "content": "请".repeat(101)});
    let problem =
        refused(invoke(&ruled.server.gate(), Wish { locale: "zh".into(), ..wish("send_message", message) }).await);
    // No backend is there: whether a tool can be run is asked first, so the gate alone is asked below.
    assert_eq!(problem.code, "NOT_EXECUTABLE");
    for (tool, arguments, path) in [
        ("preview_refund", json!({"order_id": ORDER}), "/amount"),
        ("preview_refund", json!({"order_id": ORDER, "amount": 2000.5}), "/amount"),
        ("send_message", json!({"order_id": ORDER, "recipient": "seller", "content": "请".repeat(101)}), "/content"),
    ] {
        let authorize_response::Verdict::Refused(problem) = ruled.ask(tool, arguments).await else { panic!("{tool}") };
        assert_eq!((problem.code.as_str(), problem.fields[0].path.as_str()), ("POLICY_DENIED", path), "{tool}");
        assert!(problem.repairable);
    }
    let passed = ruled.ask("preview_refund", json!({"order_id": ORDER, "amount": 2000})).await;
    assert!(matches!(passed, authorize_response::Verdict::Go(_)), "{passed:?}");
    let asked = ruled.ask("update_order_address", json!({"order_id": ORDER, "address": "苏州市姑苏区人民路8号"})).await;
    assert!(matches!(asked, authorize_response::Verdict::Confirm(_)), "{asked:?}");
}

#[tokio::test]
async fn a_changed_policy_counts_after_a_reload_and_a_broken_one_does_not() {
    let ruled = Ruled::start().await;
    let address = || wish("update_order_address", json!({"order_id": ORDER, "address": "苏州市姑苏区人民路8号"}));
    let authorize = async |wish: Wish| {
        let request = AuthorizeRequest { wish: Some(wish) };
        ruled.server.gate().authorize(request).await.unwrap().into_inner().verdict.unwrap()
    };
    let authorize_response::Verdict::Confirm(shown) = authorize(address()).await else { panic!("not asked") };

    ruled.write("policy: shop\nversion: 2\nrules:\n  - {id: a, tools: [update_adress], then: deny}\n");
    let status = ruled.server.registry().reload(ReloadRequest {}).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("rule `a` names no tool: `update_adress`"), "{}", status.message());
    assert!(matches!(authorize(address()).await, authorize_response::Verdict::Confirm(_)), "what was in force stays");

    let closed = "policy: shop\nversion: 3\nrules:\n  - {id: closed, tools: [update_order_address], then: confirm}\n";
    ruled.write(closed);
    ruled.server.registry().reload(ReloadRequest {}).await.unwrap();
    // Consent under another policy is no consent.
    let stale = authorize(Wish { confirm_token: shown.confirm_token, ..address() }).await;
    let authorize_response::Verdict::Refused(problem) = stale else { panic!("{stale:?}") };
    assert_eq!(problem.code, "TOKEN_REFUSED");
    // What a rule names cannot go before the rule does.
    let request = DeleteRequest { names: vec!["update_order_address".into()] };
    assert_eq!(ruled.server.registry().delete(request).await.unwrap_err().code(), Code::FailedPrecondition);
}

#[test]
fn the_sample_policy_fits_the_sample_cards() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/shop/policy.yaml");
    let policy = Policy::read(path.as_ref()).unwrap();
    policy.check(&pointsman::registry::load(&[crate::support::shop()], &[]).unwrap()).unwrap();
    assert_eq!(policy.version().len(), 12);
}

#[tokio::test]
async fn invoking_is_ruled_like_authorizing() {
    let ruled = Ruled::start().await;
    let verdict = invoke(&ruled.server.gate(), wish("preview_refund", json!({"order_id": ORDER}))).await;
    assert!(matches!(verdict, Verdict::Refused(_)), "{verdict:?}");
}
