use proptest::prelude::*;

use super::*;
use crate::text::normalise;

fn shop() -> Vocabulary {
    let cards = [
        ("track_shipment", "Where a parcel is: 快递到哪了 包裹什么时候到 物流信息 where is my package track delivery"),
        ("get_refund_status", "How far a refund has come: 退款到账了吗 退款怎么还没到 refund my money status"),
        ("create_return", "Send goods back: 我要退货 申请退货 return broken item"),
        ("preview_cancel_order", "取消订单 这单不要了 cancel my order"),
        ("list_coupons", "优惠券有哪些 我的优惠券 coupons"),
        ("update_order_address", "修改收货地址 地址填错了 change the address"),
        ("search_products", "搜索商品，例如蓝牙耳机 有没有货 search products"),
        ("request_invoice", "开发票 invoice"),
        ("urge_shipment", "催一下发货 催快递 hurry up"),
    ];
    Vocabulary::of_texts(cards.into_iter().map(|(name, what)| vec![name, what]))
}

fn read(vocabulary: &Vocabulary, text: &str) -> String {
    let mut query = normalise(text).unwrap();
    query.read_as(vocabulary.read(&query, &|_| true));
    query.reading().of_range(&query.text, 0..query.text.len())
}

#[test]
fn chinese_is_read_as_it_was_meant() {
    let shop = shop();
    let check = |text: &str, expect: &str| assert_eq!(read(&shop, text), expect);
    check("我的快弟到那了", "我的快递到哪了");
    check("退宽到帐没", "退款到账没");
    check("有没有兰牙耳机", "有没有蓝牙耳机");
    check("查以下定单SO-20260605536491", "查以下订单SO-20260605536491");
    check("取肖订单", "取消订单");
    check("优惠卷都有哪些", "优惠券都有哪些");
    check("地止填错了", "地址填错了");
    check("崔一下SO-20260817069543", "催一下SO-20260817069543");
    check("我要退貨，訂單還沒到", "我要退货,订单还没到");
    // What is right stays.
    for text in ["今天天气怎么样", "我在那里等你", "帮我查一下订单", "张伟明的快递", "他的权利和义务", "试用装怎么领"]
    {
        check(text, text);
    }
}

#[test]
fn pinyin_is_read_and_english_is_not() {
    let shop = shop();
    let check = |text: &str, expect: &str| assert_eq!(read(&shop, text), expect);
    check("tuikuan zenme hai mei dao", "退款怎么还没到");
    check("wo de kuaidi dao na le", "我的快递到哪了");
    check("帮我查kuaidi", "帮我查快递");
    check("wo yao tui huo", "我要退货");
    check("tuikuan怎么还没到", "退款怎么还没到");
    check("where is my kuaidi", "where is my 快递");
    for text in [
        "can you send me the code",
        "you can change a date",
        "he can sing",
        "I met Li Na in Xian",
        "danger",
        "manage me",
        "panda",
        "search_kuaidi",
    ] {
        check(text, text);
    }
}

#[test]
fn slips_in_latin_words_are_read() {
    let shop = shop();
    let check = |text: &str, expect: &str| assert_eq!(read(&shop, text), expect);
    check("refnd my ordr", "refund my order");
    check("trak my pakage", "track my package");
    check("i wnat to retrun it its brokn", "i want to return it its broken");
    check("cansel order", "cancel order");
    check("invioce pdf", "invoice pdf");
    for text in
        ["I moved to Ordr Street", "APP ordr-12 ordr_x", "vegan cheese", "kubernetes pods", "coupon for shipping"]
    {
        check(text, text);
    }
}

#[test]
fn values_are_never_touched() {
    let shop = shop();
    for text in [
        "\u{201c}快弟\u{201d}",
        "\"refnd ordr\"",
        "https://x.example/kuaidi?q=refnd",
        "kuaidi@refnd.example",
        "kuaidi1234",
        "refnd-12 13800138000",
        "ＳＯ－２０２６０４１８８６８０１４",
    ] {
        let query = normalise(text).unwrap();
        assert!(shop.read(&query, &|_| true).is_empty(), "{text}");
    }
}

#[test]
fn words_of_closed_tools_are_not_used() {
    let vocabulary = Vocabulary::of_texts([vec!["refund"], vec!["secret_zorblax", "快递"]].into_iter());
    let read = |text: &str, open: Open<'_>| {
        let query = normalise(text).unwrap();
        vocabulary.read(&query, open).notes(&query.text)
    };
    assert_eq!(read("please zorblx now", &|_| true), ["read zorblx as zorblax"]);
    assert!(read("please zorblx now", &|position| position == 0).is_empty());
}

#[test]
fn long_texts_take_no_longer_than_short_ones() {
    let shop = shop();
    for unit in ["快弟到那了退宽", "kuaidi ", "tuikuanzenmehaimeidao", "refnd ", "退貨"] {
        let text = unit.repeat(8_000 / unit.chars().count());
        let query = normalise(&text).unwrap();
        for change in shop.read(&query, &|_| true).changes() {
            assert!(change.span.start < MAX_READ, "{change:?}");
        }
    }
}

proptest! {
    #[test]
    fn reading_touches_no_slot_and_reads_its_own_text_alike(
        text in "([快弟退宽到那了订單貨优惠卷 ,]|kuaidi|tui |wo |refnd|ordr|SO-20260418000736|\"快弟\"|13800138000| x@y\\.cn){0,24}",
    ) {
        let shop = SHOP.with(std::rc::Rc::clone);
        let Ok(mut query) = normalise(&text) else { return Ok(()) };
        let reading = shop.read(&query, &|_| true);
        for change in reading.changes() {
            prop_assert!(query.slots.iter().all(|slot| slot.span.end <= change.span.start || change.span.end <= slot.span.start));
        }
        prop_assert_eq!(&reading, &shop.read(&query, &|_| true));
        query.read_as(reading);
        let _ = query.retrieval_text();
    }

    #[test]
    fn any_text_is_read_without_a_panic(text in any::<String>()) {
        let shop = SHOP.with(std::rc::Rc::clone);
        if let Ok(mut query) = normalise(&text) {
            query.read_as(shop.read(&query, &|_| true));
            let _ = (query.retrieval_text(), query.reading().notes(&query.text));
        }
    }
}

thread_local! {
    static SHOP: std::rc::Rc<Vocabulary> = std::rc::Rc::new(shop());
}
