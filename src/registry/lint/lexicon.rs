//! Words the rules know: verbs, words that say nothing, abbreviations.
//!
//! Owns: the lists and how a word of a text is found in them.
//! Does not know: cards.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use crate::text::language::is_han;

type Set = LazyLock<BTreeSet<&'static str>>;

fn set(words: &'static str) -> BTreeSet<&'static str> {
    words.split_whitespace().collect()
}

/// Verbs by which tools are named and described. Words that are nouns as well (`order`, `report`) count: this list
/// decides what is *not* complained about.
static VERBS: Set = LazyLock::new(|| {
    set(
        "accept access acknowledge acquire act activate adapt add adjust administer advance advise aggregate alert align \
         allocate allow alter amend analyse analyze animate annotate announce answer append apply appoint approve archive \
         arrange ask assess assign assist associate attach audit authenticate authorise authorize automate autocomplete await \
         backup ban batch become begin bind blend block book bookmark boost borrow bounce brew broadcast browse build bulk buy \
         calculate calibrate call cancel capture cast catalog categorise categorize chain change charge chase chat check \
         checkout choose cite claim classify clean cleanse clear click clip clone close cluster collect combine comment \
         commit compare compile complete compose compress compute conduct configure confirm connect consolidate construct \
         consult contact contain continue contribute control convert cook coordinate copy correct correlate count craft \
         crawl create crop customise customize cut deactivate debug decide declare decline decode decompress decrease decrypt deduct \
         dedupe deduplicate define delegate delete deliver denoise deny deploy deposit derive describe deserialize design \
         destroy detail detect determine develop devise diagnose diff digest disable discard disconnect discover dismiss dispatch \
         display distribute dive divide do document double download downgrade draft drag draw drill drop duplicate earn \
         edit educate embed emit employ enable encode encourage encrypt end enforce engage enhance enqueue enrich enroll \
         ensure enter enumerate escalate establish estimate evaluate examine exchange exclude execute exit expand expect \
         experience expire explain explore export expose extend extract facilitate factor fetch file fill filter finalise finalize \
         find finish fit fix flag flatten flip flush focus follow forecast forget format formulate forward foster freeze fulfill \
         gather generate geocode get give go govern grab grade grant greet group grow guess guide halt handle have help hide \
         highlight hire hold host hover identify illustrate implement import improve include incorporate increase index \
         indicate infer inform initialise initialize initiate inject innovate insert inspect inspire install integrate \
         interact interpolate interpret intersect introduce invalidate inventory invert investigate invite invoke \
         issue iterate join judge keep kick kill label launch learn leave lend let lift like limit link list listen \
         load locate lock log login logout look lookup lower make manage map mark match maximize measure memorize mentor merge \
         message migrate minimise minimize mint mitigate mix mock model moderate modify monitor mount move multiply mute name \
         navigate negotiate normalise normalize notify nullify observe obtain offer open operate optimise optimize orchestrate order \
         organise organize outline overlay overwrite pack package pair park parse participate pass paste patch pause pay peek \
         perform permit persist personalize pick pin ping place plan play plot poll pop populate post practice predict \
         prepare prescribe present preserve press prevent preview print prioritise prioritize probe process procure produce profile \
         promote prompt propose protect provide provision prune publish pull purchase purge push put qualify quantify \
         query queue quit quote raise rank rate reach react read rebase reboot rebuild recall receive recognise recognize recommend reconcile \
         record recover redeem redesign redirect redo reduce refer refine refresh refund regenerate register regulate reject \
         relate release reload relocate remember remind remove rename render renew reopen reorder repair repay repeat replace reply \
         report represent request require reschedule research reserve reset resize resolve respond restart restock \
         restore restrict resume retire retrieve retry return reveal reverse revert review revise revoke rewrite rework \
         ride roll rotate round route run sample sanitise sanitize save say scale scan schedule score scrape screen screenshot scroll \
         search secure see seed segment select sell send separate serialize serve set settle setup shape share shift ship show shuffle shut \
         sign simplify simulate skip slice snap snooze solve sort specify spell spend spin split spot stack stage standardize start state stay step stitch \
         stop store stream strengthen structure study submit subscribe substitute subtract suggest sum summarise summarize supply support surface \
         survey suspend swap switch sync synchronise synchronize synthesize tag tail take talk target teach tell terminate test throttle toggle \
         total touch trace track trade train transcribe transfer transform translate transmit transpose traverse treat trigger trim \
         troubleshoot truncate try tune turn type unassign unarchive unban unblock undelete undo unfollow unify uninstall unite unlink unlock \
         unmute unpack unpin unstar unsubscribe unwatch unzip update upgrade upload upscale upsert urge use utilize \
         validate value verify view visit visualise visualize void vote wait wake walk warn wash watch water wire withdraw work wrap write \
         yield zip zoom",
    )
});
/// Verbs of Chinese names and descriptions.
const VERBS_ZH: &str = "查询 查看 查找 查 获取 取得 得到 搜索 检索 读取 读 列出 列举 创建 新建 建立 新增 添加 增加 修改 更新 更改 变更 编辑 删除 移除 清除 清空 取消 撤销 撤回 发送 发 寄 提交 申请 办理 预订 预定 预约 订购 订 下单 购买 买 支付 付款 缴 退款 退货 退 换货 换 转账 转 充值 计算 算 估算 估计 评估 评价 分析 生成 导出 导入 下载 上传 打开 关闭 开启 开通 开具 开 启动 停止 暂停 设置 设定 设计 配置 登记 注册 登录 登出 通知 提醒 推荐 比较 对比 转换 转化 翻译 识别 检测 检查 检验 验证 校验 确认 确定 预览 跟踪 追踪 催促 催 联系 回复 评论 分享 发布 发起 发放 领取 兑换 绑定 解绑 补 调用 执行 处理 管理 返回 显示 展示 统计 监控 监测 预测 规划 安排 记录 保存 存储 分配 审批 审核 同步 重置 恢复 调整 选择 挑选 筛选 过滤 判断 提供 制定 优化 收集 采集 整理 整合 播放 拨打 呼叫 控制 定位 测量 模拟 构建 构造 编写 撰写 写 制作 绘制 渲染 训练 部署 安装 卸载 连接 断开 加入 退出 邀请 关注 订阅 退订 收藏 点赞 投票 报名 签到 打印 扫描 拍 录制 剪辑 合并 拆分 压缩 解压 加密 解密 编码 解码 排序 求 解 匹配 推断 推理 诊断 治疗 指导 帮助 协助 支持 促进 提高 提升 增强 改善 改进 实现 完成 进行 组织 策划 探索 研究 跟进 维护 修复 修理 报告 汇报 汇总 总结 归纳 提取 抽取 解析 格式化 标记 标注 分类 聚类 分割 检视 浏览 访问 抓取 爬取 运行 触发 授权 认证 激活 禁用 启用 锁定 解锁 切换 移动 复制 粘贴 重命名 替换 限制 阻止 允许 拒绝 接受 接收 根据 通过 基于 为 将 把 用于 对 按 给 让 使 向 从 在";
static VERBS_ZH_SET: Set = LazyLock::new(|| set(VERBS_ZH));

/// Verbs that say that something is done, not what.
static VAGUE_VERBS: Set = LazyLock::new(|| {
    set(
        "handle process manage do perform execute run deal work support help assist use facilitate operate provide serve \
         get fetch return call make invoke control act",
    )
});
/// Nouns that fit anything.
static VAGUE_NOUNS: Set = LazyLock::new(|| {
    set(
        "thing stuff matter task operation request data datum info information item action service object entity function \
         functionality feature tool api method something anything everything result response output input value detail details \
         resource various related relevant general generic common misc miscellaneous necessary needed specific \
         given different several other etc business logic work activity process processing purpose everything param parameter argument endpoint call system backend helper util utils utility utilities handler manager \
         main test demo sample example default custom base core all any some certain type kind",
    )
});
const VAGUE_VERBS_ZH: [&str; 14] =
    ["处理", "管理", "执行", "操作", "进行", "负责", "支持", "提供", "完成", "获取", "查询", "返回", "调用", "办理"];
const VAGUE_NOUNS_ZH: [&str; 28] = [
    "相关", "各种", "各类", "事务", "事宜", "事情", "问题", "业务", "数据", "信息", "请求", "操作", "功能", "服务",
    "内容", "任务", "结果", "接口", "工具", "方法", "处理", "管理", "等等", "一些", "所有", "用户", "通用", "东西",
];
/// Words that carry nothing by themselves.
static STOP: Set = LazyLock::new(|| {
    set(
        "a an the of to for in on at by with from as is are be been was were will would can could may might must shall should \
         and or nor but not no if then than that this these those it its their your our his her my me you we they he she i \
         which who whom whose what when where how why do does did done have has had having into out over under about \
         up down off so such only also just e g eg ie etc via per each every both either neither one any",
    )
});
/// Shorthand and what it stands for.
static SHORT: LazyLock<BTreeMap<&'static str, &'static str>> = LazyLock::new(|| {
    "acct account addr address amt amount auth authorization bal balance cfg config cfm confirm chk check cmd command cnt count \
     cpn coupon ctg category ctx context cur current cust customer del delete dept department desc description dest destination \
     disc discount dlv deliver emp employee exec execute fav favourite fmt format fnd find gen generate hist history img image \
     inv invoice itm item lkp lookup loc location lst list mbr member mgr manager mgmt manage mod modify msg message mtd method num \
     number notif notification obj object ord order org organization param parameter pkg package pmt payment pref \
     preference prod product prd product pt point pwd password qry query qty quantity rcv receive rec record ref reference \
     refd refund req request res resource resp response ret return rfd refund rmk remark rpt report rtn return sched \
     schedule sel select shp shipment sts status stk stock stmt statement sub subscribe svc service sys system tbl table temp \
     temperature tkt ticket tmp temporary trk track tx transaction txn transaction txt text upd update usr user util utility \
     val value vchr voucher wh warehouse whs warehouse wrt write"
        .split_whitespace()
        .collect::<Vec<_>>()
        .chunks_exact(2)
        .map(|pair| (pair[0], pair[1]))
        .collect()
});
/// Words without a vowel, and short forms that everybody says.
static KNOWN_SHORT: Set = LazyLock::new(|| {
    set(
        "sms mms pdf csv tsv xml html css svg png jpg jpeg gif mp3 mp4 url uri uuid id ids api sdk http https ftp sftp ssh ssl tls \
         tcp dns ip vpn vpc vm vms db sql nosql json jsonl yaml toml kv kb mb gb cpu gpu ram ssd usb gps nfc tv pc dvd cd dj fm \
         sku npm nft pr prs wms crm erp hr kpi kpis llm nlp ml dm dms rss sms tts stt ocr qr cv dna rna hrv bmi bmr btc usd cny gdp \
         by my try why fly sky cry dry shy sync myth lynx hymn rhythm gym nth mr ms dr st vs k8s s3 ec2 aws gcp mcp md ms xlsx xls \
         docx ppt pptx txt log logs ui ux os io cli ide lsp rpc grpc jwt csrf cors html5 dom xpath mbti ncbi blast pmc doi tls tmdb \
         imdb nyt nba nfl mlb nhl fpl wwe f1 cve nvd cvss crypto psd pgp gpg rds sns sqs cdn lb nat acl pvc hpa crd rbac",
    )
});
/// Nouns of deeds and the verb for each.
static DEED_NOUNS: LazyLock<BTreeMap<&'static str, &'static str>> = LazyLock::new(|| {
    "lookup get search search query query retrieval get listing list list list creation create creator create deletion delete \
     removal remove update update cancellation cancel checker check check check calculator calculate calculation calculate \
     converter convert conversion convert finder find validator validate validation validate tracker track tracking track \
     generator generate generation generate analyzer analyze analyser analyse analysis analyze predictor predict \
     prediction predict optimizer optimize scheduler schedule estimator estimate estimation estimate translation translate \
     translator translate registration register booking book reservation reserve payment pay submission submit upload upload \
     download download export export import import reader read writer write sender send builder build planner plan \
     recommendation recommend recommender recommend evaluation evaluate evaluator evaluate detector detect detection detect \
     identifier identify selector select selection select comparison compare manager manage management manage simulator \
     simulate simulation simulate assessment assess monitor monitor inquiry query enquiry query info get information get \
     details get status get fetch fetch viewer view"
        .split_whitespace()
        .collect::<Vec<_>>()
        .chunks_exact(2)
        .map(|pair| (pair[0], pair[1]))
        .collect()
});

/// Verbs of deeds that cannot be undone from here.
static IRREVERSIBLE: Set = LazyLock::new(|| {
    set("delete destroy purge wipe erase drop send pay refund charge transfer issue publish broadcast terminate kill \
         withdraw_money email sms notify_customer donate deposit wire")
});
/// Verbs that change something, by which no reading tool is named.
static CHANGING: Set = LazyLock::new(|| {
    set(
        "add apply approve archive assign ban block book buy cancel change charge clear close commit create deactivate \
         delete deploy deposit destroy disable donate drop edit enable erase execute insert install invite issue kick kill merge \
         modify move mute order patch pay post publish purchase purge push put redeem refund register reject remove rename replace \
         reply reserve reset restart revoke save schedule send set ship subscribe submit suspend terminate transfer unassign \
         unsubscribe update upload upsert wipe withdraw write",
    )
});
const CHANGING_ZH: [&str; 20] = [
    "删除", "移除", "清空", "取消", "撤销", "发送", "支付", "付款", "退款", "转账", "创建", "新增", "修改", "更新",
    "更改", "提交", "购买", "下单", "发布", "注销",
];

pub(super) fn is_verb(word: &str) -> bool {
    VERBS.contains(word)
}

/// The verb that a word of a sentence is a form of: `handles`, `handling`, `handled`.
pub(super) fn verb(word: &str) -> Option<&'static str> {
    let known = |word: &str| VERBS.get(word).copied();
    if let Some(verb) = known(word) {
        return Some(verb);
    }
    let stems = ["s", "es", "ies", "ing", "ed", "d"].iter().filter_map(|end| Some((*end, word.strip_suffix(end)?)));
    for (end, stem) in stems {
        let doubled = || stem.char_indices().last().map_or(stem, |(last, _)| &stem[..last]);
        let found = match end {
            "ies" => known(&format!("{stem}y")),
            "ing" | "ed" => known(stem).or_else(|| known(&format!("{stem}e"))).or_else(|| known(doubled())),
            _ => known(stem),
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

pub(super) fn is_vague_verb(verb: &str) -> bool {
    VAGUE_VERBS.contains(verb)
}

pub(super) fn is_vague_noun(word: &str) -> bool {
    VAGUE_NOUNS.contains(word) || word.strip_suffix('s').is_some_and(|single| VAGUE_NOUNS.contains(single))
}

pub(super) fn is_stop(word: &str) -> bool {
    STOP.contains(word)
}

/// The Chinese verb a text starts with; the longest one.
pub(super) fn verb_zh(text: &str) -> Option<&'static str> {
    // `订` is a verb, an order is none.
    if text.starts_with("订单") {
        return None;
    }
    let ends = text.char_indices().map(|(at, c)| at + c.len_utf8()).take(3);
    let starts: Vec<&str> = ends.map(|end| &text[..end]).collect();
    starts.into_iter().rev().find_map(|start| VERBS_ZH_SET.get(start).copied())
}

/// What is left of a Chinese text without verbs and nouns that say nothing, and without marks.
pub(super) fn substance_zh(text: &str) -> String {
    let mut rest = text.to_owned();
    for word in
        VAGUE_NOUNS_ZH.iter().chain(&VAGUE_VERBS_ZH).chain(&["返回", "的", "与", "和", "等", "用于", "及", "或"])
    {
        rest = rest.replace(word, "");
    }
    rest.chars().filter(|c| is_han(*c) || c.is_ascii_alphanumeric()).collect()
}

/// Whether a part of a name is no word; with the word it stands for, if that is known.
pub(super) fn abbreviated(part: &str) -> Option<Option<&'static str>> {
    if KNOWN_SHORT.contains(part) || !part.bytes().all(|byte| byte.is_ascii_lowercase()) {
        return None;
    }
    if let Some(full) = SHORT.get(part) {
        // Words of their own beside being short for something.
        const WORDS: [&str; 9] = ["disc", "mod", "sub", "val", "temp", "res", "auth", "org", "exec"];
        return (!WORDS.contains(&part)).then_some(Some(*full));
    }
    let no_vowel = !part.contains(['a', 'e', 'i', 'o', 'u', 'y']);
    (no_vowel && (3..=6).contains(&part.len())).then_some(None)
}

pub(super) fn verb_of_deed(noun: &str) -> Option<&'static str> {
    DEED_NOUNS.get(noun).copied()
}

pub(super) fn is_irreversible(verb: &str) -> bool {
    IRREVERSIBLE.contains(verb)
}

pub(super) fn is_changing(verb: &str) -> bool {
    CHANGING.contains(verb)
}

pub(super) fn changes_zh(text: &str) -> Option<&'static str> {
    CHANGING_ZH.iter().find(|verb| text.starts_with(**verb)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_a_verb_are_the_verb() {
        for (word, expect) in [
            ("handles", Some("handle")),
            ("tracking", Some("track")),
            ("computing", Some("compute")),
            ("getting", Some("get")),
            ("applies", Some("apply")),
            ("searches", Some("search")),
            ("cancelled", Some("cancel")),
            ("warranty", None),
            ("", None),
        ] {
            assert_eq!(verb(word), expect, "{word}");
        }
        assert_eq!(verb_zh("查询订单"), Some("查询"));
        assert_eq!(verb_zh("订单查询"), None);
        assert_eq!(verb_zh("保修信息"), None);
    }

    #[test]
    fn abbreviations_are_told_from_words() {
        assert_eq!(abbreviated("ord"), Some(Some("order")));
        assert_eq!(abbreviated("xqzt"), Some(None));
        for word in ["sms", "order", "pdf", "sync", "v2", "by"] {
            assert_eq!(abbreviated(word), None, "{word}");
        }
    }
}
