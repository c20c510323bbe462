#!/usr/bin/env python3
"""Renders templates with transformers' own environment of jinja2, for tests/jinja to compare with.

  jinja_templates.py [OUT]

OUT is tests/fixtures/jinja. Needs jinja2, transformers and what these need, but no model and no network.

Written, packed by zlib: expressions.jsonl, a line for each of jinja_expressions.py: the template and what it writes, that it
raises an error, or that lora refuses what it writes; variables.json, what these are rendered with. published.jsonl, the
templates of jinja_published.py; conversations.jsonl, what they are rendered with; renderings.jsonl, a line for each of them: the
first renderings and, for each BLOCK conversations, the FNV-1a hash of all that was written, one after the other, with \\x01
for an error.
"""
import datetime
import os
import random
import sys
import warnings

warnings.simplefilter("ignore")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from chat_templates import conversation, fnv, tool_conversation, write  # noqa: E402
from jinja_expressions import EXPRESSIONS, TEMPLATES  # noqa: E402
from jinja_published import PUBLISHED  # noqa: E402
import transformers.utils.chat_template_utils as chat  # noqa: E402

PLAIN, CALLING, BLOCK, SHOWN = 1400, 600, 50, 2
DAY = "2024-02-09"
VARIABLES = {
    "text": "Hello, World", "unicode": "你好 世界 é😀", "map": {"a": 1, "b": {"c": [1, "x"]}, "n": None},
    "list_of_maps": [{"n": 2, "t": "b", "m": {"k": 1}}, {"n": 1, "t": "A"}, {"n": 3, "t": "c", "m": {}}],
    "messages": [{"role": "system", "content": " Be kind. "}, {"role": "user", "content": "Hi there."},
                 {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "Bye"}],
    "tools": None, "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": True}
# What Python writes of these is an address of its memory, or a view of a mapping; or nothing, where jinja2 folds constants,
# of what is an error with variables.
REFUSED = ("{{ map.items }}", "{{ map[\"items\"] }}", "{{ map.items() }}", "{{ namespace }}", "{{ none[1:] }}",
           "{{ [1, 2, 3][\"a\":] }}")


class Clock(datetime.datetime):
    day = DAY

    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.fromisoformat(cls.day)


chat.datetime = Clock


def render(template, variables, day):
    Clock.day = day
    try:
        return chat._compile_jinja_template(template).render(**variables)
    except Exception:  # whatever it is, lora refuses it as well
        return None


def row(template):
    if template in REFUSED:
        return {"template": template, "refused": True}
    text = render(template, VARIABLES, DAY)
    return {"template": template, "error": True} if text is None else {"template": template, "text": text}


def variables_of(record):
    return {"messages": record["messages"], "tools": record["tools"], "documents": None, "bos_token": "<s>", "eos_token": "</s>",
            "add_generation_prompt": record["add_generation_prompt"], "enable_thinking": record["enable_thinking"]}


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "..", "fixtures", "jinja")
    os.makedirs(out, exist_ok=True)
    rng = random.Random(11)
    write(out, "variables.jsonl", [VARIABLES])
    write(out, "expressions.jsonl", [row(t) for t in ["{{ %s }}" % e for e in EXPRESSIONS] + TEMPLATES])
    write(out, "published.jsonl", [{"name": name, "template": text} for name, text in PUBLISHED.items()])
    records = [conversation(rng) for _ in range(PLAIN)] + [tool_conversation(rng) for _ in range(CALLING)]
    rng.shuffle(records)
    records = [{"messages": chat._alias_reasoning_fields(r["messages"]), "tools": r.get("tools"),
                "add_generation_prompt": r.get("add_generation_prompt", False),
                "enable_thinking": r.get("enable_thinking", True), "date": r.get("date", DAY)} for r in records]
    write(out, "conversations.jsonl", records)
    lines = []
    for name, template in PUBLISHED.items():
        texts = [render(template, variables_of(r), r["date"]) for r in records]
        joined = ["".join("\x01" if text is None else text for text in texts[i:i + BLOCK]) for i in range(0, len(texts), BLOCK)]
        lines.append({"name": name, "errors": sum(text is None for text in texts), "texts": texts[:SHOWN],
                      "blocks": [f"{fnv(block.encode()):016x}" for block in joined]})
        print(f"{name}: {len(texts)} renderings, {lines[-1]['errors']} errors")
    write(out, "renderings.jsonl", lines)


if __name__ == "__main__":
    main()
