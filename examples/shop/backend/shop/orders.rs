//! Tools about orders, parcels and money back.

use serde_json::{Value, json};

use super::answer::Answer;
use super::data::date;
use super::request::Asked;
use super::state::{Allowed, CANCELLED, COMPLETED, DELIVERED, Order, PAID, REFUNDING, Refund, SHIPPED, State};

pub fn yuan(cents: i64) -> f64 {
    cents as f64 / 100.0
}

pub fn not_found() -> Answer {
    Answer::error(404, "ORDER_NOT_FOUND", "no such order of this customer")
}

fn shipped() -> Answer {
    Answer::error(409, "ORDER_ALREADY_SHIPPED", "the order has been sent")
}

fn bad_token() -> Answer {
    Answer::error(403, "TOKEN_REFUSED", "the confirm token is unknown, spent, late or of another order")
}

/// A cut of `rows`, and where the next one begins. Cursors are opaque to callers.
pub fn page<T: Clone>(rows: &[T], asked: &Asked) -> Result<(Vec<T>, Option<String>), Answer> {
    let limit = asked.number("limit").map_or(10, |limit| limit as usize).clamp(1, 20);
    let start = match asked.query("cursor") {
        None => 0,
        Some(cursor) => match cursor.strip_prefix("cur_").and_then(|digits| digits.parse::<usize>().ok()) {
            Some(start) => start,
            None => return Err(Answer::error(400, "BAD_CURSOR", "the cursor is not one of ours")),
        },
    };
    let end = rows.len().min(start.saturating_add(limit));
    let next = (end < rows.len()).then(|| format!("cur_{end:08}"));
    Ok((rows.get(start..end).unwrap_or_default().to_vec(), next))
}

pub fn search(state: &mut State, asked: &Asked) -> Answer {
    let status = asked.query("status").map(|name| match name {
        "pending_payment" => "10",
        "paid" => PAID,
        "shipped" => SHIPPED,
        "delivered" => DELIVERED,
        "completed" => COMPLETED,
        "cancelled" => CANCELLED,
        "refunding" => REFUNDING,
        other => other,
    });
    let days = match asked.query("time_range") {
        Some("today") => 0..=0,
        Some("yesterday") => 1..=1,
        Some("this_week") => 0..=1,
        Some("last_7_days") => 0..=6,
        Some("last_week") => 2..=8,
        Some("this_month") => 0..=20,
        Some("last_30_days") => 0..=29,
        Some("last_month") => 21..=51,
        Some("last_90_days") => 0..=89,
        Some("this_year") => 0..=110,
        _ => 0..=u32::MAX,
    };
    let rows: Vec<Order> = state
        .orders
        .iter()
        .filter(|order| order.mine && days.contains(&order.days_ago))
        .filter(|order| status.is_none_or(|status| order.status == status))
        .filter(|order| asked.query("keyword").is_none_or(|word| order.title.contains(word)))
        .cloned()
        .collect();
    match page(&rows, asked) {
        Ok((rows, next)) => Answer::list(rows.iter().map(summary).collect(), next),
        Err(answer) => answer,
    }
}

fn summary(order: &Order) -> Value {
    json!({"order_id": order.id, "status": order.status, "amount": yuan(order.cents), "title": order.title,
        "created_at": date(order.days_ago), "warehouse": "HZ-2", "risk_score": 0.12, "buyer_phone": "138****0000"})
}

pub fn get(state: &mut State, asked: &Asked) -> Answer {
    let fields = asked.queries("fields");
    let Some(order) = state.mine(asked.order()) else { return not_found() };
    let mut whole = summary(order);
    whole["items"] = json!([{"sku": order.sku, "name": order.title, "count": 1}]);
    whole["payment"] = json!({"method": "alipay", "paid": order.status != "10"});
    whole["address"] = order.address.as_str().into();
    whole["tracking_no"] = json!(order.tracking_no);
    let wanted = if fields.is_empty() { vec!["status", "amount"] } else { fields };
    for field in ["status", "amount", "items", "created_at", "payment", "address"] {
        if let Some(object) = whole.as_object_mut().filter(|_| !wanted.contains(&field)) {
            object.remove(field);
        }
    }
    Answer::one(whole)
}

pub fn preview_cancel(state: &mut State, asked: &Asked) -> Answer {
    let Some(order) = state.mine(asked.order()).cloned() else { return not_found() };
    if order.status != PAID && order.status != "10" {
        return shipped();
    }
    let allowed = Allowed { what: "cancel", order: order.id.clone(), cents: order.cents };
    let token = state.hand_out(allowed);
    Answer::one(json!({"order_id": order.id, "will_cancel": true, "refund_amount": yuan(order.cents),
        "coupon_returned": false, "reversible": false, "confirm_token": token}))
}

pub fn cancel(state: &mut State, asked: &Asked) -> Answer {
    let Some(order) = state.mine(asked.order()).cloned() else { return not_found() };
    if order.status != PAID && order.status != "10" {
        return shipped();
    }
    let Some(allowed) = state.redeem(asked.text("confirm_token").unwrap_or_default(), "cancel", &order.id) else {
        return bad_token();
    };
    if let Some(order) = state.mine(asked.order()) {
        order.status = CANCELLED;
    }
    state.changed();
    Answer::one(json!({"order_id": order.id, "status": CANCELLED, "refund_amount": yuan(allowed.cents), "done": true}))
}

pub fn redirect(state: &mut State, asked: &Asked) -> Answer {
    let address = asked.text("address").unwrap_or_default().to_owned();
    let Some(order) = state.mine(asked.order()) else { return not_found() };
    if order.status != PAID && order.status != "10" {
        return shipped();
    }
    order.address.clone_from(&address);
    let id = order.id.clone();
    state.changed();
    Answer::one(json!({"order_id": id, "address": address, "done": true, "geo": {"lat": 30.2, "lng": 120.1}}))
}

pub fn track(state: &mut State, asked: &Asked) -> Answer {
    let (order, number) = (asked.query("order_id"), asked.query("tracking_no"));
    let found = state.orders.iter().filter(|found| found.mine && found.tracking_no.is_some()).find(|found| {
        match (order, number) {
            (None, None) => found.status == SHIPPED,
            _ => {
                order.is_none_or(|order| found.id == order)
                    && number.is_none_or(|number| found.tracking_no.as_deref() == Some(number))
            }
        }
    });
    let Some(found) = found else {
        return Answer::error(404, "PARCEL_NOT_FOUND", "there is no such parcel of this customer");
    };
    let number = found.tracking_no.clone().unwrap_or_default();
    let carrier = match number.get(..2) {
        Some("SF") => "顺丰速运",
        Some("YT") => "圆通速递",
        _ => "中通快递",
    };
    let status = if found.status == SHIPPED { "1" } else { "3" };
    let scan = |days: u32, place: &str, text: &str| {
        json!({"time": format!("{}T09:30:00+08:00", date(found.days_ago.saturating_sub(days))), "place": place, "text": text,
            "operator_id": "op-5521"})
    };
    Answer::one(json!({"tracking_no": number, "carrier": carrier, "status": status, "eta_date": "2026-04-22",
        "scans": [scan(2, "杭州转运中心", "已发出，下一站 上海"), scan(1, "杭州滨江营业点", "已揽收")],
        "order_id": found.id}))
}

pub fn urge(state: &mut State, asked: &Asked) -> Answer {
    let stage = asked.text("stage").unwrap_or("dispatch").to_owned();
    let Some(order) = state.mine(asked.order()) else { return not_found() };
    let (id, first) = (order.id.clone(), !order.urged);
    order.urged = true;
    if first {
        state.changed();
    }
    Answer::one(
        json!({"order_id": id, "stage": stage, "accepted": first, "next_allowed_at": "2026-04-22T00:00:00+08:00"}),
    )
}

pub fn refunds(state: &mut State, asked: &Asked) -> Answer {
    let mine: Vec<String> = state.orders.iter().filter(|order| order.mine).map(|order| order.id.clone()).collect();
    let rows = state
        .refunds
        .iter()
        .rev()
        .filter(|refund| mine.contains(&refund.order))
        .filter(|refund| asked.query("order_id").is_none_or(|order| refund.order == order))
        .filter(|refund| asked.query("refund_id").is_none_or(|id| refund.id == id));
    let row = |refund: &Refund| {
        json!({"refund_id": refund.id, "order_id": refund.order, "stage": refund.stage, "amount": yuan(refund.cents),
            "expected_at": "2026-04-24", "handler": "finance-02"})
    };
    Answer::list(rows.take(5).map(row).collect(), None)
}

pub fn preview_refund(state: &mut State, asked: &Asked) -> Answer {
    let wanted = asked.body.get("amount").and_then(Value::as_f64);
    let Some(order) = state.mine(asked.order()).cloned() else { return not_found() };
    let most = order.cents - order.refunded_cents;
    if matches!(order.status, "10" | CANCELLED) || most == 0 {
        return Answer::error(409, "NOTHING_TO_REFUND", "nothing of this order can be refunded");
    }
    let cents = wanted.map_or(most, |yuan| (yuan * 100.0).round() as i64);
    if cents <= 0 || cents > most {
        let message = format!("at most {} yuan can be refunded", yuan(most));
        return Answer::error(422, "AMOUNT_TOO_HIGH", message);
    }
    let token = state.hand_out(Allowed { what: "refund", order: order.id.clone(), cents });
    Answer::one(json!({"order_id": order.id, "refundable_amount": yuan(cents), "refund_to": "alipay",
        "state_after": "refunding", "reversible": false, "confirm_token": token, "cost_center": "cc-118"}))
}

pub fn refund(state: &mut State, asked: &Asked) -> Answer {
    let id = asked.order().to_owned();
    if state.mine(&id).is_none() {
        return not_found();
    }
    let Some(allowed) = state.redeem(asked.text("confirm_token").unwrap_or_default(), "refund", &id) else {
        return bad_token();
    };
    let refund = Refund {
        id: format!("RF-{:010}", state.next() + 200_000),
        order: id.clone(),
        stage: "4",
        cents: allowed.cents,
    };
    if let Some(order) = state.mine(&id) {
        order.refunded_cents += allowed.cents;
        order.status = REFUNDING;
    }
    state.refunds.push(refund.clone());
    state.changed();
    Answer::one(
        json!({"refund_id": refund.id, "order_id": id, "amount": yuan(allowed.cents), "expected_at": "2026-04-24",
        "done": true, "ledger": "gl-2026-04-7781"}),
    )
}

pub fn create_return(state: &mut State, asked: &Asked) -> Answer {
    let kind = asked.text("type").unwrap_or("return").to_owned();
    let Some(order) = state.mine(asked.order()) else { return not_found() };
    if order.status != DELIVERED && order.status != COMPLETED && order.going_back.is_none() {
        return Answer::error(409, "ORDER_NOT_DELIVERED", "the order has not arrived");
    }
    let id = order.id.clone();
    let first = order.going_back.as_ref() != Some(&kind);
    order.going_back = Some(kind.clone());
    if first {
        state.changed();
    }
    Answer::one(json!({"order_id": id, "type": kind, "return_address": "杭州市余杭区仓前街道良睦路1288号退货组",
        "send_before": "2026-04-28", "done": true}))
}

pub fn withdraw_return(state: &mut State, asked: &Asked) -> Answer {
    let Some(order) = state.mine(asked.order()) else { return not_found() };
    if order.going_back.take().is_none() {
        return Answer::error(404, "RETURN_NOT_FOUND", "no return of this order is open");
    }
    let id = order.id.clone();
    state.changed();
    Answer::one(json!({"order_id": id, "withdrawn": true, "done": true}))
}
