//! What the shop starts with. Everybody in it is invented. The shop's today is 2026-04-21.

use super::state::{
    CANCELLED, COMPLETED, Coupon, DELIVERED as ARRIVED, Invoice, Order, PAID, REFUNDING, Refund, SHIPPED, Ticket,
};
use super::{DELIVERED, FOREIGN, SENT, UNSENT};

pub struct Product {
    pub sku: &'static str,
    pub name: &'static str,
    pub category: &'static str,
    pub cents: i64,
    pub rating: f64,
    pub sold: u32,
    pub pieces: u32,
    pub restock: Option<&'static str>,
}

const fn product(
    sku: &'static str,
    name: &'static str,
    category: &'static str,
    cents: i64,
    rating: f64,
    sold: u32,
    pieces: u32,
) -> Product {
    Product {
        sku,
        name,
        category,
        cents,
        rating,
        sold,
        pieces,
        restock: if pieces == 0 { Some("2026-05-06") } else { None },
    }
}

pub const PRODUCTS: [Product; 14] = [
    product("SKU-A1B2C3", "云朵 X5 降噪耳机", "audio", 39_900, 4.7, 5_210, 120),
    product("SKU-FG9EKA", "云朵 S2 蓝牙耳机", "audio", 15_900, 4.4, 8_034, 4),
    product("SKU-K7P0QD", "山岚 迷你音箱 speaker", "audio", 12_800, 4.2, 950, 0),
    product("SKU-R3C00K", "小满 电饭煲 rice cooker 3L", "appliances", 25_900, 4.8, 3_120, 64),
    product("SKU-V4CUUM", "清风 手持吸尘器", "appliances", 32_900, 4.1, 780, 12),
    product("SKU-RUN042", "疾步 跑步鞋 running shoes", "shoes", 29_900, 4.6, 6_400, 230),
    product("SKU-HIK001", "行野 徒步鞋", "shoes", 45_900, 4.5, 1_100, 31),
    product("SKU-TSH1RT", "棉语 圆领短袖", "clothing", 7_900, 4.3, 12_400, 800),
    product("SKU-C0ATXL", "北境 羽绒服", "clothing", 89_900, 4.9, 640, 3),
    product("SKU-PH0NE9", "星河 手机 9 phone", "phones", 299_900, 4.6, 2_050, 55),
    product("SKU-LAPT0P", "星河 轻薄本 14", "computers", 499_900, 4.5, 410, 18),
    product("SKU-TEA100", "雾里 龙井 250g", "food", 16_800, 4.8, 2_900, 90),
    product("SKU-B00K77", "城市漫步指南", "books", 4_800, 4.2, 330, 140),
    product("SKU-LEG0CT", "积木城 消防站", "toys", 21_900, 4.7, 1_480, 0),
];

/// Title, text, topic.
pub const FAQ: [(&str, &str, &str); 8] = [
    (
        "退款多久到账",
        "退款审核通过后 1 到 3 个工作日原路退回，银行卡最长 7 个工作日。Refunds reach you within 3 working days.",
        "refunds",
    ),
    (
        "七天无理由退货",
        "签收后 7 天内、商品完好可无理由退货，退货运费由买家承担。Returns are free of reasons for 7 days.",
        "returns",
    ),
    ("运费怎么算", "单笔满 59 元包邮，不满收 8 元，偏远地区另计。Shipping is free from 59 yuan.", "shipping"),
    ("支持哪些付款方式", "支持微信、支付宝、银行卡和货到付款。We take WeChat Pay, Alipay and cards.", "payment"),
    ("会员积分怎么用", "100 积分抵 1 元，下单时选择。Points count one yuan per hundred.", "membership"),
    ("可以开什么发票", "可开电子普通发票，抬头可选个人或公司，签收后 180 天内可改抬头。", "invoices"),
    ("怎么修改密码", "账户设置 → 安全 → 修改密码。Settings, Security, Change password.", "account"),
    ("保修多久", "家电整机保修一年，耳机类十二个月。Appliances have a one-year warranty.", "warranty"),
];

const STREETS: [&str; 4] = [
    "杭州市西湖区文三路398号东信大厦5层",
    "苏州市姑苏区人民路8号",
    "成都市武侯区科华路12号",
    "上海市徐汇区漕溪北路88号1203",
];

fn order(id: &str, status: &'static str, cents: i64, product: usize, days_ago: u32) -> Order {
    let product = &PRODUCTS[product % PRODUCTS.len()];
    Order {
        id: id.into(),
        mine: true,
        status,
        cents,
        title: product.name.into(),
        sku: product.sku.into(),
        days_ago,
        address: STREETS[(days_ago % 4) as usize].into(),
        tracking_no: None,
        refunded_cents: 0,
        urged: false,
        going_back: None,
        invoice: None,
    }
}

fn with_parcel(order: Order, tracking_no: &str) -> Order {
    Order { tracking_no: Some(tracking_no.into()), ..order }
}

/// Newest first: the ones that examples and tests speak of, somebody else's, and 36 old ones for turning pages.
pub fn orders() -> Vec<Order> {
    let invoice = Invoice { number: "24332000000012345678".into(), title: "陈小雨".into(), tax_no: None };
    let mut orders = vec![
        order("SO-20260421000012", "10", 7_900, 7, 0),
        order(UNSENT, PAID, 29_900, 5, 1),
        order("SO-20260419000233", PAID, 4_800, 12, 2),
        with_parcel(order(SENT, SHIPPED, 39_900, 0, 3), "SF1234567890"),
        with_parcel(order("SO-20260415000410", SHIPPED, 25_900, 3, 6), "YT0000012345"),
        Order { mine: false, ..order(FOREIGN, PAID, 299_900, 9, 10) },
        Order { invoice: Some(invoice), ..with_parcel(order(DELIVERED, ARRIVED, 45_900, 6, 19), "SF9876543210") },
        order("SO-20260105000017", PAID, 16_800, 11, 106),
        order("SO-20260105000024", PAID, 21_900, 13, 106),
        Order {
            going_back: Some("return".into()),
            ..with_parcel(order("SO-20260101915331", REFUNDING, 32_900, 4, 110), "ZT0000000777")
        },
    ];
    orders.extend((0..36).map(|n: u32| {
        let days_ago = 25 + n * 2;
        let status = if n % 9 == 8 { CANCELLED } else { COMPLETED };
        let id = format!("SO-{}{:06}", date(days_ago).replace('-', ""), 1_000 + n);
        order(&id, status, i64::from(1_990 + n * 731), n as usize, days_ago)
    }));
    orders.sort_by(|a, b| a.days_ago.cmp(&b.days_ago).then_with(|| b.id.cmp(&a.id)));
    orders
}

pub fn refunds() -> Vec<Refund> {
    vec![
        Refund { id: "RF-0000123456".into(), order: "SO-20260101915331".into(), stage: "2", cents: 32_900 },
        Refund { id: "RF-0000098765".into(), order: FOREIGN.into(), stage: "4", cents: 299_900 },
    ]
}

pub fn coupons() -> Vec<Coupon> {
    let coupon = |code: &str, cents, min_spend_cents, expires_on, status| Coupon {
        code: code.into(),
        cents,
        min_spend_cents,
        expires_on,
        status,
    };
    vec![
        coupon("CP-SPRING20", 2_000, 19_900, "2026-05-05", "usable"),
        coupon("CP-SHIP8", 800, 0, "2026-04-30", "usable"),
        coupon("CP-NEW10", 1_000, 5_900, "2026-03-31", "expired"),
        coupon("CP-LUCKY5", 500, 0, "2026-06-18", "used"),
    ]
}

pub fn tickets() -> Vec<Ticket> {
    vec![Ticket {
        id: "TK-00123456".into(),
        category: "logistics".into(),
        status: "1",
        last_reply: "您好，已联系承运商核实包裹位置，预计明天中午前回复您。".into(),
    }]
}

/// `2026-04-18` for three days ago. Only days of 2026.
pub fn date(days_ago: u32) -> String {
    const MONTHS: [u32; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    const TODAY: u32 = 111;
    let mut day = TODAY.saturating_sub(days_ago).max(1);
    for (month, length) in (1..).zip(MONTHS) {
        if day <= length {
            return format!("2026-{month:02}-{day:02}");
        }
        day -= length;
    }
    "2026-12-31".into()
}
