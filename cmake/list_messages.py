#!/usr/bin/env python3
"""Writes docs/messages*.md: every message of an error, by what it is about, so that a search in docs finds it.

  cmake/list_messages.py            writes the pages
  cmake/list_messages.py --check    exits with 1 where they are others than it would write
  cmake/list_messages.py --self-test

What differs is told as …: of fail<…>(…), refuse(…) and the like it takes the texts in the order of the arguments.
"""
import argparse
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Pages by the folders below include/lora; "program" is examples/lora.
PAGES = {
    "settings": ("settings, and how the program is called", ["settings", "program"]),
    "data": ("records, tables and chat templates", ["data", "inputs", "jinja"]),
    "files": ("files", ["io", "core"]),
    "models": ("models, adapters and tokenizers", ["model", "tokenizer"]),
    "runs": ("runs, evaluations and answers", ["run", "train", "report", "evaluation", "forecast", "decode", "doors"]),
    "devices": ("processes, processors and NPUs", ["comm", "ascend", "cpu", "doctor"]),
    "library": ("arguments of the library", ["kernel", "nn", "optim", "tensor"]),
}
CALL = re.compile(r"(?<![\w])(fail(?:_\w+)?(?:<\w+>)?|refuse|refuse_\w+)\(")
LITERAL = re.compile(r'(?:u8)?"((?:[^"\\\n]|\\.)*)"|R"(\w*)\((.*?)\)\2"', re.DOTALL)
ESCAPES = {"\\n": " ", "\\t": " ", '\\"': '"', "\\\\": "\\", "\\'": "'"}
MOST_LINES, MOST_COLUMNS = 150, 138


def closing(text, at):
    """The place of the parenthesis that closes the one before `at`."""
    depth = 1
    while depth > 0:
        if text[at] in "\"'":
            quote, at = text[at], at + 1
            while text[at] != quote:
                at += 2 if text[at] == "\\" else 1
        elif text[at] in "([{":
            depth += 1
        elif text[at] in ")]}":
            depth -= 1
        at += 1
    return at - 1


def words_of(arguments):
    """Texts among arguments, with … for what stands between them."""
    words, at = "", 0
    for literal in LITERAL.finditer(arguments):
        if re.search(r"[^\s,]", re.sub(r"\bconcat\(", "", arguments[at:literal.start()])):
            words += "…"
        raw = literal.group(1) if literal.group(1) is not None else literal.group(3)
        words += re.sub(r'\\[nt"\\\']', lambda match: ESCAPES[match.group()], raw)
        at = literal.end()
    if re.search(r"[^\s,)]", arguments[at:]):
        words += "…"
    return re.sub(r"\s+", " ", re.sub("…( ?…)+", "…", words)).strip()


def messages_of(text):
    text = re.sub(r"(?m)^\s*//.*$|(?<=[;{}\s])//.*$", "", text)
    for call in CALL.finditer(text):
        try:
            words = words_of(text[call.end():closing(text, call.end())])
        except IndexError:  # in a literal, or of a macro
            continue
        if len(re.sub(r"[^A-Za-z]", "", words)) >= 8 and " " in words:
            yield words


def folder_of(path):
    parts = path.relative_to(ROOT).parts
    if parts[0] == "examples":
        return "program"
    return parts[2] if len(parts) > 3 else "doors"


def pages():
    found = {}
    for path in sorted([*(ROOT / "include").rglob("*.[hi]pp"), *(ROOT / "examples" / "lora").glob("*.[hc]pp")]):
        found.setdefault(folder_of(path), set()).update(messages_of(path.read_text(encoding="utf-8")))
    known = {folder for _, folders in PAGES.values() for folder in folders}
    assert not found.keys() - known, f"no page has the messages of {found.keys() - known}"
    for name, (about, folders) in PAGES.items():
        entries = sorted(set().union(*(found.get(folder, set()) for folder in folders)),
                         key=lambda words: (re.sub(r"[^a-z]", "", words.lower()), words))
        blocks = [textwrap.wrap("- " + words.replace("`", "'"), MOST_COLUMNS, subsequent_indent="  ",
                                break_long_words=False, break_on_hyphens=False) for words in entries]
        parts, room = [[]], 0
        for block in blocks:
            if room + len(block) > MOST_LINES - 8:
                parts.append([])
                room = 0
            parts[-1] += block
            room += len(block)
        for number, lines in enumerate(parts, 1):
            more = f", part {number} of {len(parts)}" if len(parts) > 1 else ""
            head = [f"# Messages: {about}{more}", "",
                    "Every text of an error, in the order of its letters; … stands for what differs. What to do about those that people meet is in",
                    "[troubleshooting.md](troubleshooting.md). `cmake/list_messages.py` writes this page.", ""]
            stem = f"messages_{name}" + (f"_{number}" if len(parts) > 1 else "")
            yield ROOT / "docs" / f"{stem}.md", "\n".join([*head, *lines]) + "\n"


def self_test():
    for source, messages in (
        ('fail<Error>("no ", what, " is here; ", "expected one");', ["no … is here; expected one"]),
        ('fail<ConfigError>(place, ": given ", x ? "a \\"b\\"" : concat("c ", f(")")), ", which is none");',
         ['…: given …a "b"…c …)…, which is none']),
        ('view.fail("\\"loss\\" is ", loss,\n    "; expected a number");', ['"loss" is …; expected a number']),
        ('if (bad) refuse("which is no folder", x);  // fail<Error>("not this one")', ["which is no folder…"]),
        ('fail_io("short", path);  failure("is not one of these");', []),
    ):
        found = list(messages_of(source))
        if found != messages:
            print(f"{source}\n  gives {found}\n  instead of {messages}")
            return 1
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args()
    if args.self_test:
        return self_test()
    wanted = dict(pages())
    there = set((ROOT / "docs").glob("messages_*.md"))
    if args.check:
        stale = sorted(there - wanted.keys()) + [path for path, text in wanted.items()
                                                 if not path.exists() or path.read_text(encoding="utf-8") != text]
        for path in stale:
            print(f"{path.relative_to(ROOT)} has other messages than the sources: run cmake/list_messages.py")
        return 1 if stale else 0
    for path in there - wanted.keys():
        path.unlink()
    for path, text in wanted.items():
        path.write_text(text, encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: {text.count(chr(10))} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
