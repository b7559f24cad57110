"""Compares ways of finding a tool by words: plain BM25 against tantivy, character bigrams against jieba words.

    python -m venv venv && venv/bin/pip install -r benches/lexical/requirements.txt
    venv/bin/python benches/lexical/compare.py --data DIR [--limit 600] [set ...]

DIR holds one folder a set with `queries.dev.jsonl` and either `tools.jsonl` or `registry.yaml`. A row counts when it
has a gold tool, holds for the whole registry and asks for one tool; it is a hit when any right tool is among the
first k. Equal scores are ordered by tool, as the product does. Nothing here is random.
"""

import argparse
import json
import math
import re
import unicodedata
from collections import Counter, defaultdict
from itertools import islice
from pathlib import Path

import jieba
import snowballstemmer
import tantivy
import yaml

SETS = ["metatool", "callnavi", "bfcl", "seal-tools", "acebench-zh", "shop"]
# What the `bm25` crate computes; tantivy uses the same two numbers.
K1, B = 1.2, 0.75
DEPTH = 5

HAN = re.compile("[々〇\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af]+")
WORD = re.compile(r"[^\W_]+")
STEMMER = snowballstemmer.stemmer("english")
CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def words(text, han_tokens):
    """Lower-case words with names split at case changes and punctuation; runs of Han through `han_tokens`."""
    text = unicodedata.normalize("NFKC", text).replace("'", "").replace("’", "")
    tokens, start = [], 0
    for run in HAN.finditer(text):
        tokens += latin(text[start : run.start()]) + han_tokens(run.group())
        start = run.end()
    return tokens + latin(text[start:])


def latin(text):
    return [part.lower() for word in WORD.findall(text) for part in CAMEL.split(word)]


def bigrams(run):
    return [run] if len(run) == 1 else [run[i : i + 2] for i in range(len(run) - 1)]


def jieba_words(run):
    """Words and, for long ones, the dictionary words inside them: jieba's own mode for search indices."""
    return list(jieba.cut_for_search(run))


def stemmed(tokens):
    """English words cut to their stems; Han tokens have none."""
    return [token if HAN.match(token) else STEMMER.stemWord(token) for token in tokens]


def read_tools(folder):
    """Name, description and parameter text of each tool, by name."""
    if (folder / "tools.jsonl").exists():
        rows = [json.loads(line) for line in (folder / "tools.jsonl").open(encoding="utf-8")]
    else:
        rows = yaml.safe_load((folder / "registry.yaml").read_text(encoding="utf-8"))["tools"]
    tools = {}
    for row in rows:
        text = row["description"]
        if isinstance(text, dict):  # in parts; what a tool is *not* for must not attract requests
            text = " ".join([text.get("what", ""), *text.get("when_to_use", []), text.get("returns", "")])
        tools[row["name"]] = (row["name"], text or "", " ".join(parameter_texts(row.get("parameters"))))
    return sorted(tools.values())


def parameter_texts(schema):
    if not isinstance(schema, dict):
        return
    for name, child in (schema.get("properties") or {}).items():
        yield name
        if isinstance(child, dict):
            if isinstance(child.get("description"), str):
                yield child["description"]
            yield from parameter_texts(child)
    yield from parameter_texts(schema.get("items"))


def read_queries(folder, limit):
    rows = (json.loads(line) for line in (folder / "queries.dev.jsonl").open(encoding="utf-8"))
    rows = (r for r in rows if r["gold"] and r["kind"] != "multi" and not r.get("scope"))
    return [(r["query"], set(r["gold"]) | set(r.get("also_ok") or [])) for r in islice(rows, limit or None)]


class Bm25:
    """One field; the formula of the `bm25` crate."""

    def __init__(self, tools, han_tokens, reduce=list, name_times=1):
        self.tokenise = lambda text: reduce(words(text, han_tokens))
        documents = [Counter(self.tokenise(" ".join([tool[0]] * name_times + [*tool[1:]]))) for tool in tools]
        lengths = [sum(d.values()) for d in documents]
        average = sum(lengths) / len(lengths)
        found_in = Counter(token for d in documents for token in d)
        self.postings = defaultdict(list)
        for row, (document, length) in enumerate(zip(documents, lengths)):
            for token, count in document.items():
                idf = math.log(1 + (len(tools) - found_in[token] + 0.5) / (found_in[token] + 0.5))
                weight = count * (K1 + 1) / (count + K1 * (1 - B + B * length / average))
                self.postings[token].append((row, idf * weight))

    def search(self, query):
        scores = Counter()
        for token in dict.fromkeys(self.tokenise(query)):
            for row, score in self.postings.get(token, ()):
                scores[row] += score
        return sorted(scores, key=lambda row: (-scores[row], row))[:DEPTH]


class Tantivy:
    """Index in RAM, either one field of our tokens or three fields with a tokenizer of tantivy's own."""

    def __init__(self, tools, han_tokens=None, analyser=None, name_boost=1.0):
        self.tokenise = lambda text: " ".join(words(text, han_tokens)) if han_tokens else text
        self.fields = ["all"] if han_tokens else ["name", "what", "parameters"]
        self.boosts = {} if han_tokens else {"name": name_boost}
        schema = tantivy.SchemaBuilder().add_unsigned_field("row", stored=True)
        for field in self.fields:
            schema.add_text_field(field, tokenizer_name=analyser or "whitespace")
        self.index = tantivy.Index(schema.build())
        writer = self.index.writer(heap_size=50_000_000, num_threads=1)
        for row, tool in enumerate(tools):
            texts = [self.tokenise(" ".join(tool))] if han_tokens else [spread(tool[0]), *tool[1:]]
            writer.add_document(tantivy.Document(row=row, **dict(zip(self.fields, texts))))
        writer.commit()
        writer.wait_merging_threads()
        self.index.reload()
        self.searcher = self.index.searcher()

    def search(self, query):
        # A disjunction of plain words: quotes, colons and the like would be query syntax.
        text = " ".join(dict.fromkeys(WORD.findall(self.tokenise(query))))
        parsed, _ = self.index.parse_query_lenient(text, self.fields, field_boosts=self.boosts)
        hits = self.searcher.search(parsed, DEPTH).hits
        return [self.searcher.doc(address)["row"][0] for _, address in hits]


def spread(name):
    return " ".join(latin(name))


VARIANTS = {
    "bm25 bigrams": lambda tools: Bm25(tools, bigrams),
    "bm25 jieba": lambda tools: Bm25(tools, jieba_words),
    "bm25 bigrams, stems": lambda tools: Bm25(tools, bigrams, stemmed),
    "bm25 bigrams, stems, name x2": lambda tools: Bm25(tools, bigrams, stemmed, name_times=2),
    "tantivy bigrams": lambda tools: Tantivy(tools, bigrams),
    "tantivy jieba": lambda tools: Tantivy(tools, jieba_words),
    "tantivy default, 3 fields": lambda tools: Tantivy(tools, analyser="default"),
    "tantivy en_stem, 3 fields": lambda tools: Tantivy(tools, analyser="en_stem"),
    "tantivy en_stem, name x2": lambda tools: Tantivy(tools, analyser="en_stem", name_boost=2.0),
}


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", type=Path, required=True, metavar="DIR")
    options.add_argument("--limit", type=int, default=600, help="rows a set, 0 for all")
    options.add_argument("sets", nargs="*", default=SETS, metavar="set")
    arguments = options.parse_args()
    jieba.setLogLevel(60)
    print("| set | tools | rows | way | R@1 | R@5 | R@5 gained/lost against the first |\n|---|---|---|---|---|---|---|")
    for name in arguments.sets:
        tools = read_tools(arguments.data / name)
        queries = read_queries(arguments.data / name, arguments.limit)
        baseline = None
        for variant, build in VARIANTS.items():
            engine = build(tools)
            found = [[tools[row][0] in right for row in engine.search(query)] for query, right in queries]
            at_1, at_5 = ([any(hits[:k]) for hits in found] for k in (1, DEPTH))
            baseline = baseline or at_5
            gained, lost = (sum(a > b for a, b in zip(*pair)) for pair in ((at_5, baseline), (baseline, at_5)))
            r1, r5 = (100 * sum(hits) / len(queries) for hits in (at_1, at_5))
            print(f"| {name} | {len(tools)} | {len(queries)} | {variant} | {r1:.1f} | {r5:.1f} | +{gained} -{lost} |")


if __name__ == "__main__":
    main()
