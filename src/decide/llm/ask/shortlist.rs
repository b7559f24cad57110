//! The tools one prompt offers, and the names by which the model may answer.

use std::collections::BTreeSet;

use super::super::AnswerMode;
use crate::catalog::Tool;
use crate::decide::{Request, related};
use crate::types::{Candidate, ToolId};

/// Tools in stable order plus the two ways of choosing none of them.
#[derive(Debug)]
pub(crate) struct Shortlist<'a> {
    pub tools: Vec<&'a Tool>,
    /// Name under which "no tool" is offered.
    pub none: String,
    /// Name under which "ask the user first" is offered.
    pub ask: String,
    /// Tools left out because of the prompt's limit.
    pub cut: usize,
    candidates: &'a [Candidate],
}

/// What a name in an answer stands for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Named<'a> {
    Tool(&'a Tool),
    None,
    Ask,
}

/// Functions the prompt offers beside the tools: declining and asking.
pub(crate) const CONTROLS: usize = 2;

impl<'a> Shortlist<'a> {
    /// Keeps the best `max_tools` tools by rank, in the order given. As functions, the two controls count as well.
    pub fn new(request: &Request<'a>, max_tools: usize, mode: AnswerMode) -> Self {
        let room = match mode {
            AnswerMode::Functions => max_tools.saturating_sub(CONTROLS),
            AnswerMode::JsonSchema | AnswerMode::ChooseThenFill => max_tools,
        };
        let mut tools = request.tools.to_vec();
        let cut = tools.len().saturating_sub(room.max(1));
        if cut > 0 {
            let mut ranked: Vec<(usize, &ToolId)> =
                tools.iter().map(|tool| (rank(request.candidates, tool.id()), tool.id())).collect();
            ranked.sort_unstable();
            let kept: BTreeSet<ToolId> = ranked.iter().take(room.max(1)).map(|(_, id)| (*id).clone()).collect();
            tools.retain(|tool| kept.contains(tool.id()));
        }
        let none = free_name("no_tool", &tools);
        let ask = free_name("ask_user", &tools);
        Self { tools, none, ask, cut, candidates: request.candidates }
    }

    /// By alias, then by id; providers sometimes put `functions.` in front.
    pub fn resolve(&self, name: &str) -> Option<Named<'a>> {
        let name = name.trim();
        self.resolve_exact(name).or_else(|| self.resolve_exact(name.strip_prefix("functions.")?))
    }

    fn resolve_exact(&self, name: &str) -> Option<Named<'a>> {
        if name == self.none {
            return Some(Named::None);
        }
        if name == self.ask {
            return Some(Named::Ask);
        }
        let by_alias = self.tools.iter().find(|tool| tool.alias == name);
        by_alias.or_else(|| self.tools.iter().find(|tool| tool.id().as_str() == name)).map(|tool| Named::Tool(tool))
    }

    /// The offered tool that the card of `tool` calls `name`. A tool that is not offered must not be named.
    pub fn neighbour(&self, tool: &Tool, name: &str) -> Option<&'a Tool> {
        related(&self.tools, tool, name)
    }

    /// Every name the model may use, tools first.
    pub fn names(&self) -> Vec<&str> {
        let tools = self.tools.iter().map(|tool| tool.alias.as_str());
        tools.chain([self.none.as_str(), self.ask.as_str()]).collect()
    }

    /// Position in the ranking, 0 is best; unranked tools come last.
    pub fn rank(&self, id: &ToolId) -> usize {
        rank(self.candidates, id)
    }
}

fn rank(candidates: &[Candidate], id: &ToolId) -> usize {
    candidates.iter().position(|candidate| candidate.tool == *id).unwrap_or(usize::MAX)
}

/// `base`, or `base_2`, `base_3`, … when a tool has that name already.
fn free_name(base: &str, tools: &[&Tool]) -> String {
    let taken = |name: &str| tools.iter().any(|tool| tool.alias == name || tool.id().as_str() == name);
    std::iter::once(base.to_owned())
        .chain((2..).map(|n| format!("{base}_{n}")))
        .find(|name| !taken(name))
        .expect("the names never end and the tools do")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::llm::testing::{Shop, tool};

    #[test]
    fn the_controls_never_share_a_name_with_a_tool() {
        let shop = Shop::of(vec![tool("no_tool"), tool("ask.user"), tool("ask_user")]);
        let tools = shop.tools();
        let list = Shortlist::new(&shop.request("hi", &tools), 128, AnswerMode::Functions);
        assert_eq!((list.none.as_str(), list.ask.as_str()), ("no_tool_2", "ask_user_2"));
        assert!(matches!(list.resolve("no_tool"), Some(Named::Tool(t)) if t.id().as_str() == "no_tool"));
        assert!(matches!(list.resolve("ask.user"), Some(Named::Tool(_))));
        assert!(matches!(list.resolve("functions.ask_user"), Some(Named::Tool(_))));
        assert!(matches!(list.resolve(" no_tool_2 "), Some(Named::None)));
        assert!(list.resolve("python").is_none());
    }

    #[test]
    fn the_worst_ranked_tools_are_cut_and_the_order_stays() {
        let shop = Shop::of(["a", "b", "c", "d"].map(tool).to_vec()).ranked(&["d", "b", "a", "c"]);
        let tools = shop.tools();
        let ids = |max, mode| {
            let list = Shortlist::new(&shop.request("hi", &tools), max, mode);
            (list.tools.iter().map(|t| t.id().to_string()).collect::<Vec<_>>().join(""), list.cut)
        };
        assert_eq!(ids(4, AnswerMode::Functions), ("bd".into(), 2));
        assert_eq!(ids(3, AnswerMode::JsonSchema), ("abd".into(), 1));
        assert_eq!(ids(128, AnswerMode::Functions), ("abcd".into(), 0));
    }
}
