//! Which request is which tool.

use super::answer::Answer;
use super::request::Asked;
use super::state::State;
use super::{orders, service};

pub type Action = fn(&mut State, &Asked) -> Answer;

/// Method, path with `*` for any segment, tool, what it does.
const ROUTES: [(&str, &str, &str, Action); 26] = [
    ("GET", "orders", "search_orders", orders::search),
    ("GET", "orders/*", "get_order", orders::get),
    ("POST", "orders/*/cancellation/preview", "preview_cancel_order", orders::preview_cancel),
    ("POST", "orders/*/cancellation", "cancel_order", orders::cancel),
    ("PUT", "orders/*/address", "update_order_address", orders::redirect),
    ("GET", "parcels", "track_shipment", orders::track),
    ("POST", "orders/*/urges", "urge_shipment", orders::urge),
    ("GET", "refunds", "get_refund_status", orders::refunds),
    ("POST", "orders/*/refund/preview", "preview_refund", orders::preview_refund),
    ("POST", "orders/*/refund", "execute_refund", orders::refund),
    ("POST", "orders/*/return", "create_return", orders::create_return),
    ("DELETE", "orders/*/return", "withdraw_return", orders::withdraw_return),
    ("GET", "products", "search_products", service::search_products),
    ("GET", "stock", "get_stock", service::stock),
    ("POST", "tickets", "create_ticket", service::create_ticket),
    ("GET", "tickets", "get_ticket", service::get_ticket),
    ("POST", "orders/*/messages", "send_message", service::send_message),
    ("GET", "account", "get_account_overview", service::account),
    ("PUT", "account/address", "update_default_address", service::default_address),
    ("PUT", "account/notifications", "set_notification_preference", service::notifications),
    ("GET", "coupons", "list_coupons", service::coupons),
    ("POST", "coupons", "issue_coupon", service::issue_coupon),
    ("POST", "orders/*/invoice", "request_invoice", service::request_invoice),
    ("GET", "orders/*/invoice", "get_invoice", service::get_invoice),
    ("PUT", "orders/*/invoice/title", "change_invoice_title", service::change_title),
    ("GET", "faq", "search_faq", service::faq),
];

pub fn find(asked: &Asked) -> Option<(&'static str, Action)> {
    let fits = |path: &str| {
        let segments: Vec<&str> = path.split('/').collect();
        segments.len() == asked.path.len()
            && segments.iter().zip(&asked.path).all(|(wanted, given)| *wanted == "*" || wanted == given)
    };
    let route = ROUTES.iter().find(|(method, path, ..)| *method == asked.method && fits(path))?;
    Some((route.2, route.3))
}
