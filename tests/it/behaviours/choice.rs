//! Choice and stability.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pointsman::catalog::{Catalog, CatalogBuilder};
use pointsman::decide::Request;
use pointsman::decide::confidence::Model;
use pointsman::decide::llm::Llm;
use pointsman::decision::{DecidedBy, Outcome, Stage};
use pointsman::embed::Encoders;
use pointsman::pipeline::{RouteError, RouteRequest};
use pointsman::retrieve::stable_order;
use pointsman::text::normalise;
use pointsman::types::{Caller, Candidate, Deadline, Evidence, Role, Score, Turn};
use serde_json::{Map, json};
use tokio::task::JoinSet;

use crate::support::scripted_llm::{ScriptedLlm, call, delay};
use crate::support::shop::{Shop, called, dev_rows, request, result, settings, the_call, the_question, uncached};

const ORDER: &str = "SO-20260418000736";

#[tokio::test]
async fn sb_055_a_cold_request_asks_the_model_and_is_stored_a_second_one_hits() {
    let llm = ScriptedLlm::start([call("track_shipment", json!({"tracking_no": "SF1234567890"}))]).await;
    let shop = Shop::with_llm(&llm, &[]).await;

    let cold = shop.route("track SF1234567890").await;
    assert_eq!(called(&cold), r#"track_shipment{"tracking_no":"SF1234567890"}"#);
    assert_eq!((cold.trace.cache.as_str(), cold.trace.stored), ("miss", true));
    assert!((5..=8).contains(&cold.candidates.len()), "{:?}", cold.candidates);
    assert_eq!((cold.trace.model.as_str(), cold.trace.llm_calls), ("scripted", 1));
    let stages: Vec<Stage> = cold.timings.keys().copied().collect();
    assert_eq!(stages, [Stage::Normalise, Stage::Embed, Stage::Prefilter, Stage::Decide, Stage::Total]);

    let warm = shop.route("track SF1234567890").await;
    assert_eq!(called(&warm), called(&cold));
    assert_eq!((warm.trace.cache.as_str(), warm.decided_by), ("hit", DecidedBy::CacheExact));
    assert_eq!((warm.trace.llm_calls, warm.tokens.prompt, llm.calls()), (0, 0, 1));
    let stages: Vec<Stage> = warm.timings.keys().copied().collect();
    assert_eq!(stages, [Stage::Normalise, Stage::Cache, Stage::Total], "nothing but the cache was at work");
}

#[tokio::test]
async fn sb_056_noise_in_the_scores_leaves_the_prompt_as_it_is() {
    let llm = ScriptedLlm::start([call("no_tool", json!({}))]).await;
    let shop = Shop::start(&[]).await;
    let catalog = catalog(&shop).await;
    let utterance = "SO-20260418000736 退款";
    let ranking = shop
        .router
        .rank(&request(utterance), &Caller::local(), Deadline::after(Duration::from_secs(30)))
        .await
        .unwrap();
    let shortlist = ranking.candidates[..ranking.shortlist].to_vec();
    let tied: Vec<Candidate> =
        shortlist.iter().map(|candidate| Candidate { score: Score::new(1.0), ..candidate.clone() }).collect();

    let decider =
        Llm::new(settings(&[("llm.base_url", llm.url()), ("llm.model", "scripted")]).pipeline.llm.unwrap()).unwrap();
    let (query, session) = (normalise(utterance).unwrap(), Map::new());
    let mut orders = BTreeSet::new();
    for candidates in [&shortlist, &tied].into_iter().flat_map(|list| [noisy(list, 0), noisy(list, 1), noisy(list, 2)])
    {
        orders.insert(candidates.iter().map(|candidate| candidate.tool.clone()).collect::<Vec<_>>());
        let tools = stable_order(&catalog, &candidates);
        let request = Request {
            query: &query,
            tenant: "local",
            history: &[],
            session: &session,
            tools: &tools,
            candidates: &candidates,
            evidence: &Evidence::default(),
            model: Model::WORDS,
            max_calls: 1,
        };
        decider.decide(&request, Deadline::after(Duration::from_secs(30))).await.unwrap();
    }
    assert!(orders.len() > 1, "the noise changed ranks");
    let prompts: BTreeSet<Vec<u8>> = llm.bodies().into_iter().collect();
    assert_eq!((llm.calls(), prompts.len()), (6, 1));
}

/// Scores moved by up to 1e-4, best first again.
fn noisy(candidates: &[Candidate], seed: usize) -> Vec<Candidate> {
    let noise = |index: usize| ((index * 7 + seed * 3) % 11) as f32 / 10.0 * 1e-4;
    let mut noisy: Vec<Candidate> = candidates
        .iter()
        .enumerate()
        .map(|(index, candidate)| Candidate {
            score: Score::new(candidate.score.get() + noise(index)),
            ..candidate.clone()
        })
        .collect();
    noisy.sort_by(|a, b| b.score.get().total_cmp(&a.score.get()).then_with(|| a.tool.cmp(&b.tool)));
    noisy
}

/// The shop's cards as a catalog of their own; order by name needs no vectors.
async fn catalog(shop: &Shop) -> Catalog {
    let (_, registry) = shop.router.registry();
    let builder = CatalogBuilder::new(Arc::new(Encoders::none()), settings(&[]).pipeline.index);
    let (catalog, _) = builder.build(registry.as_ref().clone(), 1, &|_, _| {}).await.unwrap();
    catalog
}

#[tokio::test]
async fn sb_057_temperature_is_zero() {
    let llm = ScriptedLlm::start([call("get_account_overview", json!({}))]).await;
    let shop = Shop::with_llm(&llm, &[]).await;
    shop.route("我有多少积分呀").await;
    let temperature = llm.requests()[0]["temperature"].as_f64().unwrap();
    assert_eq!(temperature, 0.0);
}

#[tokio::test]
async fn sb_058_the_seed_is_fixed() {
    let llm = ScriptedLlm::start([call("get_account_overview", json!({}))]).await;
    let shop = Shop::with_llm(&llm, &[]).await;
    for _ in 0..2 {
        shop.ask(uncached("我有多少积分呀")).await;
    }
    let seeds: Vec<Option<i64>> = llm.requests().iter().map(|request| request["seed"].as_i64()).collect();
    assert_eq!(seeds.len(), 2);
    assert!(seeds[0].is_some() && seeds[0] == seeds[1], "{seeds:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sb_059_repetitions_and_callers_get_one_decision() {
    let shop = Arc::new(Shop::start(&[("cache.enabled", "false")]).await);
    let rows: Vec<_> = dev_rows().into_iter().step_by(13).take(20).collect();
    assert_eq!(rows.len(), 20);
    let requests: Arc<Vec<RouteRequest>> = Arc::new(
        rows.into_iter().map(|row| RouteRequest { history: row.history, ..request(&row.utterance) }).collect(),
    );
    let mut callers = JoinSet::new();
    // Ten times each in all.
    for repetitions in [3, 3, 2, 2] {
        let (shop, requests) = (Arc::clone(&shop), Arc::clone(&requests));
        callers.spawn(async move {
            let mut seen = Vec::new();
            for (index, request) in requests.iter().enumerate() {
                for _ in 0..repetitions {
                    let decision = shop.ask(request.clone()).await;
                    assert_eq!(decision.trace.cache, "off");
                    seen.push((index, result(&decision).to_string(), decision.decided_by.as_str()));
                }
            }
            seen
        });
    }
    let seen: Vec<_> = callers.join_all().await.into_iter().flatten().collect();
    assert_eq!(seen.len(), 20 * 10);
    let mut by_row: BTreeMap<usize, BTreeSet<(String, &str)>> = BTreeMap::new();
    for (index, result, decided_by) in seen {
        by_row.entry(index).or_default().insert((result, decided_by));
    }
    for (index, decisions) in by_row {
        assert_eq!(decisions.len(), 1, "{}: {decisions:?}", requests[index].utterance);
    }
}

#[tokio::test]
async fn sb_060_where_no_tool_fits_none_is_called() {
    let shop = Shop::start(&[]).await;
    for utterance in ["今天天气怎么样", "帮我充50块话费"] {
        let decision = shop.route(utterance).await;
        assert!(matches!(decision.outcome, Outcome::NoTool { .. }), "{utterance}: {:?}", decision.outcome);
    }
}

#[tokio::test]
async fn sb_061_what_is_missing_is_asked_for_at_once() {
    let shop = Shop::start(&[]).await;
    for (utterance, beginning) in [("要发票", "请提供"), ("I need an invoice drawn up", "Please tell me")] {
        let decision = shop.route(utterance).await;
        let question = the_question(&decision);
        let tool = question.tool.as_ref().map(|tool| tool.as_str());
        assert_eq!((tool, question.missing.join(" ")), (Some("request_invoice"), "order_id title_type".to_owned()));
        assert!(question.question.starts_with(beginning), "{}", question.question);
        for field in ["order_id", "title_type", "company"] {
            assert!(question.question.contains(field), "{field}: {}", question.question);
        }
    }
}

#[tokio::test]
async fn sb_064_wordings_nobody_wrote_down_are_covered_by_meaning() {
    let shop = Shop::start(&[]).await;
    for utterance in ["说是今天送达，人呢？", "明明写着已签收，可我没收到"] {
        let decision = shop.route(utterance).await;
        let tool = decision.outcome.tool().map(|tool| tool.as_str());
        assert_eq!(tool, Some("track_shipment"), "{utterance}: {:?}", decision.outcome);
    }
}

#[tokio::test]
async fn sb_066_borders_act_in_both_directions() {
    let shop = Shop::start(&[]).await;
    for (utterance, tool) in [
        ("退款一般几天能到卡里".to_owned(), "search_faq"),
        (format!("{ORDER} 的退款到账了没"), "get_refund_status"),
        (format!("{ORDER} 退款"), "preview_refund"),
    ] {
        assert_eq!(the_call(&shop.route(&utterance).await).tool.as_str(), tool, "{utterance}");
    }
}

/// On one thread, whose clock can be moved.
#[tokio::test(flavor = "current_thread")]
async fn sb_067_open_model_calls_are_limited_and_the_rest_waits_or_is_told() {
    let llm = ScriptedLlm::start([delay(300, call("get_account_overview", json!({})))]).await;
    let limits = [("llm.concurrency", "4"), ("llm.queue", "16"), ("route.deadline_ms", "60000")];
    let shop = Arc::new(Shop::with_llm(&llm, &limits).await);
    let mut requests = JoinSet::new();
    for _ in 0..50 {
        let shop = Arc::clone(&shop);
        requests.spawn(async move { shop.try_ask(uncached("我有多少积分呀"), &Caller::local()).await });
    }
    let answers = requests.join_all().await;
    assert_eq!(llm.peak(), 4);
    let (served, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert!(served.len() >= 20, "four in work and sixteen waiting are served, were {}", served.len());
    for answer in served {
        assert_eq!(answer.unwrap().decided_by, DecidedBy::Llm);
    }
    for refusal in refused {
        assert!(matches!(refusal, Err(RouteError::Overloaded)), "{refusal:?}");
    }

    // Six a minute: one every ten seconds, of a clock that is moved by hand.
    let llm = ScriptedLlm::start([call("get_account_overview", json!({}))]).await;
    let shop =
        Arc::new(Shop::with_llm(&llm, &[("llm.requests_per_minute", "6"), ("route.deadline_ms", "60000")]).await);
    let ask = |seconds: u64| {
        let shop = Arc::clone(&shop);
        async move {
            let deadline = Deadline::after(Duration::from_secs(seconds));
            shop.router.route(uncached("我有多少积分呀"), &Caller::local(), deadline).await
        }
    };
    assert_eq!(ask(60).await.unwrap().decided_by, DecidedBy::Llm);
    assert!(matches!(ask(5).await, Err(RouteError::Overloaded)), "its turn would come too late, so it is told at once");
    let patient = tokio::spawn(ask(40));
    // Long enough for it to come to the limit; were it late, it would wait less.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(llm.calls(), 1, "it waits");
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(10)).await;
    tokio::time::resume();
    assert_eq!(patient.await.unwrap().unwrap().decided_by, DecidedBy::Llm);
    assert_eq!(llm.calls(), 2);
}

#[tokio::test]
async fn sb_062_the_prompt_allows_none_draws_borders_and_says_when_to_stop() {
    const TOKEN: &str = "ct_4f0c2a9be17d6358";
    let cancel = json!({"order_id": ORDER, "confirm_token": TOKEN});
    let turn = |role, content: &str| Turn { role, content: content.into() };
    let done = |wish: &str, yes: &str| {
        let preview =
            json!({"tool": "preview_cancel_order", "ok": true, "data": {"order_id": ORDER, "confirm_token": TOKEN}});
        let result = json!({"tool": "cancel_order", "ok": true, "data": {"order_id": ORDER, "done": true}});
        vec![
            turn(Role::User, wish),
            turn(Role::Tool, &preview.to_string()),
            turn(Role::User, yes),
            turn(Role::Tool, &result.to_string()),
        ]
    };
    for (wish, yes, border, stop) in [
        ("SO-20260418000736 取消订单", "确认取消", "不适用：", "事情办完就停"),
        ("cancel SO-20260418000736", "yes, go ahead and cancel it", "Not for: ", "Stop when the work is done"),
    ] {
        let llm = ScriptedLlm::start([call("no_tool", json!({})), call("cancel_order", cancel.clone())]).await;
        let shop = Shop::with_llm(&llm, &[("prefilter.signals", "lexical")]).await;
        // The model keeps to the rule: no further call, no further question.
        let ask = || RouteRequest { history: done(wish, yes), ..uncached(yes) };
        let decision = shop.ask(ask()).await;
        assert!(matches!(decision.outcome, Outcome::NoTool { .. }), "{:?}", decision.outcome);
        assert_eq!(llm.calls(), 1);
        let prompt = llm.requests()[0].clone();
        let system = prompt["messages"][0]["content"].as_str().unwrap();
        assert!(system.contains(stop) && system.contains("\"done\": true") && system.contains("no_tool"), "{system}");
        let functions = prompt["tools"].to_string();
        assert!(functions.contains("\"no_tool\"") && functions.contains(border), "{functions}");
        assert!(prompt["messages"][1]["content"].as_str().unwrap().contains("done"));

        // One that does not is not followed.
        let decision = shop.ask(ask()).await;
        assert!(matches!(decision.outcome, Outcome::NoTool { .. }), "{:?}", decision.outcome);
        assert!(decision.trace.notes.iter().any(|note| note.contains("not made again")), "{:?}", decision.trace.notes);
        assert_eq!(llm.calls(), 2);
    }
}

/// On one thread, so that every task has come as far as it can when this one continues.
#[tokio::test(flavor = "current_thread")]
async fn sb_068_a_held_encoder_does_not_hold_a_cached_answer() {
    let shop = Arc::new(Shop::start(&[]).await);
    assert!(shop.route("我的快递到哪了呀").await.trace.stored);

    let done = Arc::new(AtomicUsize::new(0));
    let ask = |utterance: String| {
        let (shop, done) = (Arc::clone(&shop), Arc::clone(&done));
        tokio::spawn(async move {
            let answer = shop.try_ask(uncached(&utterance), &Caller::local()).await;
            done.fetch_add(1, Ordering::SeqCst);
            answer.is_ok()
        })
    };
    // Long texts hold the encoder, a hundred short ones wait behind them.
    let holding: Vec<_> = (0..16).map(|number| ask(format!("{number}{}", "我想问一下快递的事情".repeat(50)))).collect();
    let waiting: Vec<_> = (0..100).map(|number| ask(format!("第{number}个快递到哪了"))).collect();
    tokio::task::yield_now().await;
    let before = done.swap(0, Ordering::SeqCst);
    assert!(before < holding.len(), "the encoder was not held");

    let cached = shop.route("我的快递到哪了呀").await;
    assert_eq!(cached.trace.cache, "hit");
    let answered = waiting.iter().filter(|task| task.is_finished()).count();
    assert_eq!(answered, 0, "none of the hundred had an answer");
    for task in holding.into_iter().chain(waiting) {
        assert!(task.await.unwrap());
    }
}

#[tokio::test]
async fn sb_069_repeated_requests_cost_no_model_call() {
    let waybill = |number: usize| format!("SF12345678{number:02}");
    // Thirty utterances, seventy repetitions spread between them.
    let replay: Vec<usize> = (0..30).flat_map(|new| [new, new / 2, new / 3]).chain(0..10).collect();
    assert_eq!(replay.len(), 100);
    let script = (0..30).map(|number| delay(40, call("track_shipment", json!({"tracking_no": waybill(number)}))));
    let llm = ScriptedLlm::start(script).await;
    let shop = Shop::with_llm(&llm, &[]).await;

    let mut times: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for number in replay {
        let decision = shop.route(&format!("{}到哪了", waybill(number))).await;
        assert_eq!(the_call(&decision).arguments["tracking_no"], waybill(number));
        times
            .entry(decision.decided_by.as_str())
            .or_default()
            .push(decision.timings[&Stage::Total].as_secs_f64() * 1e3);
    }
    assert_eq!((llm.calls(), times["llm"].len(), times["cache_exact"].len()), (30, 30, 70));
    let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len() as f64;
    let (without, with) = (mean(&times["llm"]), mean(&times["cache_exact"]));
    println!("mean latency: {without:.1} ms with a model call, {with:.1} ms from the cache");
    assert!(with * 4.0 < without, "{with} {without}");
}
