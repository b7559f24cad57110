//! Everything the shop remembers.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::data;

/// How long a confirm token counts.
const TOKEN_TTL: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub struct State {
    /// Newest first.
    pub orders: Vec<Order>,
    pub refunds: Vec<Refund>,
    pub coupons: Vec<Coupon>,
    pub tickets: Vec<Ticket>,
    pub messages: Vec<Value>,
    pub default_address: String,
    /// Topic and channel → on or off.
    pub notifications: BTreeMap<(String, String), bool>,
    tokens: BTreeMap<String, Token>,
    next: u64,
    /// Grows with everything that changes the world.
    pub changes: usize,
}

/// Status codes as the backend knows them.
pub const PAID: &str = "20";
pub const SHIPPED: &str = "30";
pub const DELIVERED: &str = "40";
pub const COMPLETED: &str = "50";
pub const CANCELLED: &str = "60";
pub const REFUNDING: &str = "70";

#[derive(Debug, Clone)]
pub struct Order {
    pub id: String,
    pub mine: bool,
    pub status: &'static str,
    pub cents: i64,
    pub title: String,
    pub sku: String,
    pub days_ago: u32,
    pub address: String,
    pub tracking_no: Option<String>,
    pub refunded_cents: i64,
    pub urged: bool,
    pub going_back: Option<String>,
    pub invoice: Option<Invoice>,
}

#[derive(Debug, Clone)]
pub struct Invoice {
    pub number: String,
    pub title: String,
    pub tax_no: Option<String>,
}

#[derive(Debug, Clone)]
pub struct Refund {
    pub id: String,
    pub order: String,
    pub stage: &'static str,
    pub cents: i64,
}

#[derive(Debug, Clone)]
pub struct Coupon {
    pub code: String,
    pub cents: i64,
    pub min_spend_cents: i64,
    pub expires_on: &'static str,
    pub status: &'static str,
}

#[derive(Debug, Clone)]
pub struct Ticket {
    pub id: String,
    pub category: String,
    pub status: &'static str,
    pub last_reply: String,
}

/// What a confirm token allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed {
    /// `cancel` or `refund`.
    pub what: &'static str,
    pub order: String,
    pub cents: i64,
}

#[derive(Debug)]
struct Token {
    allowed: Allowed,
    made: Instant,
}

impl State {
    pub fn new() -> Self {
        Self {
            orders: data::orders(),
            refunds: data::refunds(),
            coupons: data::coupons(),
            tickets: data::tickets(),
            messages: Vec::new(),
            default_address: "杭州市西湖区文三路398号东信大厦5层".into(),
            notifications: BTreeMap::new(),
            tokens: BTreeMap::new(),
            next: 1,
            changes: 0,
        }
    }

    /// An order of the signed-in customer.
    pub fn mine(&mut self, id: &str) -> Option<&mut Order> {
        self.orders.iter_mut().find(|order| order.mine && order.id == id)
    }

    pub fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Something has changed for good.
    pub fn changed(&mut self) {
        self.changes += 1;
    }

    pub fn hand_out(&mut self, allowed: Allowed) -> String {
        let token = format!("ct_{}", random(16));
        self.tokens.insert(token.clone(), Token { allowed, made: Instant::now() });
        token
    }

    /// What the token allows, once.
    pub fn redeem(&mut self, token: &str, what: &str, order: &str) -> Option<Allowed> {
        let known = self.tokens.get(token)?;
        let fits = known.allowed.what == what && known.allowed.order == order && known.made.elapsed() < TOKEN_TTL;
        if !fits {
            return None;
        }
        self.tokens.remove(token).map(|token| token.allowed)
    }
}

/// So many small letters and digits.
fn random(length: usize) -> String {
    const SIGNS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let sign = |_| char::from(SIGNS[(RandomState::new().build_hasher().finish() % 36) as usize]);
    (0..length).map(sign).collect()
}
