//! Tools about products, tickets, the account, coupons, invoices and the rules.

use serde_json::{Value, json};

use super::answer::Answer;
use super::data::{FAQ, PRODUCTS, Product};
use super::orders::{not_found, page, yuan};
use super::request::Asked;
use super::state::{Coupon, Invoice, State, Ticket};

pub fn search_products(_: &mut State, asked: &Asked) -> Answer {
    let word = asked.query("keyword").unwrap_or_default().to_lowercase();
    let wanted = |product: &&Product| {
        product.name.to_lowercase().contains(&word)
            && asked.query("category").is_none_or(|category| product.category == category)
            && asked.number("min_price").is_none_or(|least| yuan(product.cents) >= least)
            && asked.number("max_price").is_none_or(|most| yuan(product.cents) <= most)
    };
    let mut found: Vec<&Product> = PRODUCTS.iter().filter(wanted).collect();
    match asked.query("sort") {
        Some("price_asc") => found.sort_by_key(|product| product.cents),
        Some("price_desc") => found.sort_by_key(|product| -product.cents),
        Some("sales") => found.sort_by_key(|product| std::cmp::Reverse(product.sold)),
        _ => {}
    }
    let row = |product: &&Product| {
        json!({"sku": product.sku, "name": product.name, "price": yuan(product.cents), "rating": product.rating,
            "in_stock": product.pieces > 0, "supplier": "sup-204", "margin": 0.31})
    };
    match page(&found, asked) {
        Ok((rows, next)) => Answer::list(rows.iter().map(row).collect(), next),
        Err(answer) => answer,
    }
}

pub fn stock(_: &mut State, asked: &Asked) -> Answer {
    let (sku, name) = (asked.query("sku"), asked.query("product_name"));
    let found = PRODUCTS.iter().find(|product| match (sku, name) {
        (Some(sku), _) => product.sku == sku,
        (None, Some(name)) => product.name.contains(name),
        (None, None) => false,
    });
    let Some(product) = found else {
        return Answer::error(404, "PRODUCT_NOT_FOUND", "there is no such article");
    };
    let level = match product.pieces {
        0 => "none",
        1..10 => "low",
        _ => "plenty",
    };
    Answer::one(json!({"sku": product.sku, "variant": asked.query("variant"), "available": product.pieces > 0,
        "quantity_level": level, "restock_date": product.restock, "pieces": product.pieces}))
}

pub fn create_ticket(state: &mut State, asked: &Asked) -> Answer {
    let ticket = Ticket {
        id: format!("TK-{:08}", 200_000 + state.next()),
        category: asked.text("category").unwrap_or("other").into(),
        status: "0",
        last_reply: String::new(),
    };
    state.tickets.push(ticket.clone());
    state.changed();
    Answer::one(json!({"ticket_id": ticket.id, "category": ticket.category,
        "promised_reply_at": "2026-04-22T12:00:00+08:00", "done": true, "queue": "q-cn-3"}))
}

pub fn get_ticket(state: &mut State, asked: &Asked) -> Answer {
    let wanted = asked.query("ticket_id");
    let Some(ticket) = state.tickets.iter().rev().find(|ticket| wanted.is_none_or(|id| ticket.id == id)) else {
        return Answer::error(404, "TICKET_NOT_FOUND", "there is no such case");
    };
    Answer::one(json!({"ticket_id": ticket.id, "status": ticket.status, "last_reply": ticket.last_reply,
        "promised_reply_at": "2026-04-22T12:00:00+08:00", "agent": "王敏 (8812)"}))
}

pub fn send_message(state: &mut State, asked: &Asked) -> Answer {
    let recipient = asked.text("recipient").unwrap_or("seller").to_owned();
    let Some(order) = state.mine(asked.order()).map(|order| order.id.clone()) else { return not_found() };
    let id = format!("MSG-{:08}", state.next());
    state.messages.push(json!({"id": id, "order": order, "to": recipient, "content": asked.text("content")}));
    state.changed();
    Answer::one(json!({"message_id": id, "recipient": recipient, "sent_at": "2026-04-21T10:00:00+08:00", "done": true}))
}

pub fn account(state: &mut State, asked: &Asked) -> Answer {
    let wanted = asked.queries("fields");
    let usable = state.coupons.iter().filter(|coupon| coupon.status == "usable").count();
    let all = [
        ("points", json!(2_680)),
        ("member_level", json!("gold")),
        ("balance", json!(35.5)),
        ("coupon_count", json!(usable)),
        ("default_address", json!(state.default_address)),
    ];
    let mut body = json!({"customer_id": "u-100293", "phone": "138****0000"});
    for (name, value) in all {
        if wanted.is_empty() || wanted.contains(&name) {
            body[name] = value;
        }
    }
    Answer::one(body)
}

pub fn default_address(state: &mut State, asked: &Asked) -> Answer {
    let address = asked.text("address").unwrap_or_default().to_owned();
    state.default_address.clone_from(&address);
    state.changed();
    Answer::one(json!({"default_address": address, "done": true}))
}

pub fn notifications(state: &mut State, asked: &Asked) -> Answer {
    let (topic, channel) = (asked.text("topic").unwrap_or("all"), asked.text("channel").unwrap_or("all"));
    let enabled = asked.body.get("enabled").and_then(Value::as_bool).unwrap_or(true);
    state.notifications.insert((topic.into(), channel.into()), enabled);
    state.changed();
    Answer::one(json!({"topic": topic, "channel": channel, "enabled": enabled, "done": true}))
}

pub fn coupons(state: &mut State, asked: &Asked) -> Answer {
    let status = asked.query("status").unwrap_or("usable");
    let rows: Vec<Coupon> = state.coupons.iter().filter(|coupon| coupon.status == status).cloned().collect();
    let row = |coupon: &Coupon| {
        json!({"coupon_code": coupon.code, "value": yuan(coupon.cents), "min_spend": yuan(coupon.min_spend_cents),
            "expires_on": coupon.expires_on, "status": coupon.status, "campaign": "spring-04"})
    };
    match page(&rows, asked) {
        Ok((rows, _)) => Answer::list(rows.iter().map(row).collect(), None),
        Err(answer) => answer,
    }
}

pub fn issue_coupon(state: &mut State, asked: &Asked) -> Answer {
    let cents = match asked.text("coupon_type") {
        Some("free_shipping") => 800,
        Some("apology_5") => 500,
        Some("apology_10") => 1_000,
        Some("apology_20" | "birthday") => 2_000,
        _ => return Answer::error(422, "NO_SUCH_COUPON", "there is no such kind of coupon"),
    };
    let code = format!("CP-SORRY{:04}", state.next());
    let coupon = Coupon { code, cents, min_spend_cents: 0, expires_on: "2026-07-20", status: "usable" };
    state.coupons.push(coupon.clone());
    state.changed();
    Answer::one(
        json!({"coupon_code": coupon.code, "value": yuan(cents), "expires_on": coupon.expires_on, "done": true}),
    )
}

pub fn request_invoice(state: &mut State, asked: &Asked) -> Answer {
    let number = format!("2433200000{:010}", 50_000 + state.next());
    let title = asked.text("title").unwrap_or("个人").to_owned();
    let Some(order) = state.mine(asked.order()) else { return not_found() };
    let first = order.invoice.is_none();
    let tax_no = asked.text("tax_no").map(str::to_owned);
    let invoice = order.invoice.get_or_insert(Invoice { number, title, tax_no }).clone();
    if first {
        state.changed();
    }
    Answer::one(
        json!({"invoice_no": invoice.number, "title": invoice.title, "expected_at": "2026-04-22", "done": true}),
    )
}

pub fn get_invoice(state: &mut State, asked: &Asked) -> Answer {
    let format = asked.query("format").unwrap_or("pdf").to_owned();
    let Some(order) = state.mine(asked.order()) else { return not_found() };
    let Some(invoice) = &order.invoice else {
        return Answer::error(404, "INVOICE_NOT_FOUND", "no invoice of this order has been drawn up");
    };
    Answer::one(
        json!({"invoice_no": invoice.number, "title": invoice.title, "amount": yuan(order.cents), "format": format,
        "download_url": format!("https://files.shop.example/i/{}.{format}?t=9c1f", invoice.number)}),
    )
}

pub fn change_title(state: &mut State, asked: &Asked) -> Answer {
    let (title, tax_no) = (asked.text("title").unwrap_or_default().to_owned(), asked.text("tax_no").map(str::to_owned));
    let Some(order) = state.mine(asked.order()) else { return not_found() };
    let Some(invoice) = &mut order.invoice else {
        return Answer::error(404, "INVOICE_NOT_FOUND", "no invoice of this order has been drawn up");
    };
    invoice.title.clone_from(&title);
    invoice.tax_no.clone_from(&tax_no);
    let number = invoice.number.clone();
    state.changed();
    Answer::one(json!({"invoice_no": number, "title": title, "tax_no": tax_no, "done": true}))
}

pub fn faq(_: &mut State, asked: &Asked) -> Answer {
    let question: Vec<char> = asked.query("question").unwrap_or_default().to_lowercase().chars().collect();
    let limit = asked.number("limit").map_or(3, |limit| limit as usize).clamp(1, 5);
    // Pairs of neighbouring characters in common: crude, and enough for eight pages.
    let common = |text: &str| {
        let text = text.to_lowercase();
        question.windows(2).filter(|pair| text.contains(&pair.iter().collect::<String>())).count()
    };
    let mut rows: Vec<_> = FAQ
        .iter()
        .filter(|(_, _, topic)| asked.query("topic").is_none_or(|wanted| wanted == *topic))
        .map(|page| (common(page.0) + common(page.1), page))
        .filter(|(score, _)| *score > 1)
        .collect();
    rows.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
    let row = |(score, (title, text, topic)): &(usize, &(&str, &str, &str))| json!({"title": title, "excerpt": text, "url": format!("https://shop.example/help/{topic}"), "score": score});
    Answer::list(rows.iter().take(limit).map(row).collect(), None)
}
