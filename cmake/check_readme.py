#!/usr/bin/env python3
"""Fails unless the documents hold what they promise: code that tests run, pages of one screenful or a few, links that lead somewhere.

Code      After <!-- FILE --> stands that file, from its first include on; after <!-- FILE#PART --> what stands in it between the
          lines "// [PART]" and "// [end]", without the indentation of the first.
Pages     Each page of docs/ has at most 150 lines of at most 140 characters, code and tables included, and docs/README.md links to it.
Links     Every link of a document to a file, and to a heading of one, exists, and so does every docs/PAGE.md that a source names.
Figures   The first screens of README.md and README.zh.md, up to their first heading of second rank, have the same numbers, each
          as often, and those of tables in the same order.
Messages  docs/troubleshooting.md shows, at the head of each entry, messages as sources have them, "…" standing for what differs.

  cmake/check_readme.py [--self-test]
"""
import collections
import pathlib
import re
import sys
import tempfile
import textwrap

LINES, CHARACTERS = 150, 140
SOURCES = ("include", "examples", "tests", "cmake", "bench", ".ci")
FOREIGN_PAGES = {"spec.md"}  # of Git LFS, by which io/files/lfs_pointer.hpp knows its files


def code_of(root, name):
    name, _, part = name.partition("#")
    if not (root / name).is_file():
        return None
    text = (root / name).read_text(encoding="utf-8")
    if not part:
        return text[text.index("#include"):]
    found = re.search(rf"^ *// \[{re.escape(part)}\]\n(.*?)^ *// \[end\]$", text, re.DOTALL | re.MULTILINE)
    return textwrap.dedent(found.group(1)) if found else None


def wrong_code(root, documents):
    shown = set()
    for document in documents:
        name, text = document.relative_to(root).as_posix(), document.read_text(encoding="utf-8")
        blocks = re.findall(r"<!-- (\S+) -->\n```cpp\n(.*?)```", text, re.DOTALL)
        shown.update(source.partition("#")[0] for source, _ in blocks)
        for source, code in blocks:
            if code_of(root, source) != code:
                yield f"{name}: its code is not {source}'s"
        if len(blocks) < text.count("```cpp"):
            yield f"{name}: code without a mark <!-- FILE --> or <!-- FILE#PART -->"
    for source in ("examples/fine_tune.cpp", "examples/library.cpp"):
        if source not in shown:
            yield f"no document shows code of {source}"


def without_code(text):
    """The text with nothing in its blocks and spans of code."""
    text = re.sub(r"^( *)```.*?^ *```$", r"\1", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`]*`", "``", text)


def anchors(text):
    """The names that GitHub gives to headings."""
    names = set()
    for heading in re.findall(r"^#+ (.*)$", re.sub(r"^ *```.*?^ *```$", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip().lower())
        name = re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")
        count = 0
        while name + (f"-{count}" if count else "") in names:
            count += 1
        names.add(name + (f"-{count}" if count else ""))
    return names


def links(document):
    return re.findall(r"\]\(([^)\s]+)\)", without_code(document.read_text(encoding="utf-8")))


def wrong_links(root, documents):
    for document in documents:
        for link in links(document):
            if re.match(r"\w+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = (document.parent / path).resolve() if path else document
            if not target.exists():
                yield f"{document.relative_to(root).as_posix()}: there is nothing at {link}"
            elif anchor and anchor not in anchors(target.read_text(encoding="utf-8")):
                yield f"{document.relative_to(root).as_posix()}: {link} names no heading of that page"


def wrong_pages(root, pages):
    linked = {link.partition("#")[0] for link in links(root / "docs" / "README.md")}
    for page in pages:
        name, lines = page.relative_to(root).as_posix(), page.read_text(encoding="utf-8").splitlines()
        if len(lines) > LINES:
            yield f"{name}: {len(lines)} lines, more than {LINES}"
        for number, line in enumerate(lines, 1):
            if len(line) > CHARACTERS:
                yield f"{name}:{number}: {len(line)} characters, more than {CHARACTERS}"
        if page.name != "README.md" and page.name not in linked:
            yield f"{name}: docs/README.md has no link to it"


def sources(root, folders, suffixes):
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in suffixes and path.is_file() and "fixtures" not in path.parts and path != pathlib.Path(__file__).resolve():
                yield path, path.read_text(encoding="utf-8", errors="replace")


def wrong_names(root):
    for path, text in sources(root, SOURCES, {".hpp", ".ipp", ".cpp", ".py", ".sh", ".txt", ".cmake", ""}):
        for page in re.findall(r"(?<!/)\bdocs/(\w+\.md)", text):
            if page not in FOREIGN_PAGES and not (root / "docs" / page).exists():
                yield f"{path.relative_to(root).as_posix()}: there is no docs/{page}"


def wrong_messages(root):
    """Of each message the texts between what differs; sources have them in one literal or in neighbors."""
    page = root / "docs" / "troubleshooting.md"
    if not page.exists():
        return
    literals = []
    for _, text in sources(root, ("include", "examples"), {".hpp", ".ipp", ".cpp"}):
        text = re.sub(r"(?<!\\)\"\s*,?\s*\"", "", text)  # neighbors, and neighboring arguments
        literals += [literal.replace('\\"', '"') for literal in re.findall(r'"((?:[^"\\\n]|\\.)*)"', text)]
    known = "\n".join(literals)
    for entry in re.split(r"^- ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        entry, colon, _ = entry.partition("`:")
        if not entry.startswith("`") or not colon:
            yield f"docs/troubleshooting.md: an entry that is not `MESSAGE`: and what to do, '{entry[:40].strip()}'"
            continue
        for message in re.findall(r"`([^`]*)`", entry + "`"):
            for part in re.sub(r"\s+", " ", message).split("…"):
                # The name of a key, and brackets around what was given, are put in by one function for all.
                words = re.sub(r"^key \w*:?", "", part.strip(" ()")).strip()
                if len(words) > 3 and words not in known:
                    yield f"docs/troubleshooting.md: no source has '{words}'"


def wrong_figures(root):
    both = []
    for name in ("README.md", "README.zh.md"):
        first_screen = (root / name).read_text(encoding="utf-8").partition("\n## ")[0]
        both.append([re.findall(r"\d+(?:[.,]\d+)*(?:e-?\d+)?", line) for line in first_screen.splitlines()
                     if line.startswith("|")] + [re.findall(r"\d+(?:[.,]\d+)*(?:e-?\d+)?", first_screen)])
    all_here, all_there = (collections.Counter(numbers[-1]) for numbers in both)
    for number in sorted(set(all_here) | set(all_there)):
        if all_here[number] != all_there[number]:
            yield f"README.md has {number} {all_here[number]} times in its first screen, README.zh.md {all_there[number]} times"
    if all_here == all_there and both[0][:-1] != both[1][:-1]:
        yield "README.zh.md: the rows of its tables have other numbers than those of README.md, or in another order"


def offences(root):
    pages = sorted((root / "docs").glob("*.md"))
    documents = [root / "README.md", root / "README.zh.md", root / "CONTRIBUTING.md", *pages]
    yield from wrong_code(root, documents)
    yield from wrong_pages(root, pages)
    yield from wrong_links(root, documents)
    yield from wrong_names(root)
    yield from wrong_messages(root)
    yield from wrong_figures(root)


def self_test():
    good = {
        "README.md": "2 of 1,200 in 1.5e-3 s\n| 5 | 6 |\n<!-- examples/fine_tune.cpp -->\n```cpp\n#include <a>\n```\n[manual](docs/README.md) "
                     "[b](docs/b.md#two-words-x)\n\n## More\n3\n",
        "README.zh.md": "1,200 1.5e-3 2\n| 5 | 6 |\n\n## 4\n",
        "CONTRIBUTING.md": "# How\n",
        "docs/README.md": "[b](b.md) [t](troubleshooting.md)\n",
        "docs/b.md": "# B\n## Two words: `x`\n```\n# none\n[no](none.md)\n```\n`[no](none.md)` [above](#b) [web](https://a.b/c#d)\n"
                     "<!-- examples/library.cpp#part -->\n```cpp\nint a;\n```\n",
        "docs/troubleshooting.md": "# T\n- `a … went wrong` · `not\n  there; … or so`:\n  Mend it.\n",
        "examples/fine_tune.cpp": "// first\n#include <a>\n",
        "examples/library.cpp": "  // [part]\n  int a;\n  // [end]\n",
        "include/lora/core/a.hpp": '// docs/b.md\nfail("a ", name, " went "\n  "wrong"); fail("not there; ", name, " or so");\n',
    }
    bad = [
        ("README.md", good["README.md"].replace("<a>", "<b>"), "README.md: its code is not examples/fine_tune.cpp's"),
        ("README.md", good["README.md"] + "```cpp\n```\n", "README.md: code without a mark"),
        ("README.md", "# 2 1,200 1.5e-3\n| 5 | 6 |\n", "no document shows code of examples/fine_tune.cpp"),
        ("README.zh.md", "1,200 1.5e-4 2\n| 5 | 6 |\n", "README.md has 1.5e-3 1 times", "README.md has 1.5e-4 0 times"),
        ("README.zh.md", "1,200 1.5e-3 2 2\n| 5 | 6 |\n", "README.md has 2 1 times in its first screen, README.zh.md 2 times"),
        ("README.zh.md", "1,200 1.5e-3 2\n| 6 | 5 |\n", "README.zh.md: the rows of its tables have other numbers"),
        ("README.zh.md", "1,200 1.5e-3 2 [a](none.md)\n| 5 | 6 |\n", "README.zh.md: there is nothing at none.md"),
        ("docs/b.md", good["docs/b.md"].replace("int a", "int b"), "docs/b.md: its code is not examples/library.cpp#part's"),
        ("docs/b.md", good["docs/b.md"] + "\n" * LINES, "docs/b.md: 161 lines"),
        ("docs/b.md", good["docs/b.md"] + "é" * (CHARACTERS + 1) + "\n", "docs/b.md:12: 141 characters"),
        ("docs/c.md", "# C\n", "docs/c.md: docs/README.md has no link to it"),
        ("docs/b.md", good["docs/b.md"] + "[c](c.md)\n", "docs/b.md: there is nothing at c.md"),
        ("docs/b.md", good["docs/b.md"] + "![c](../c.svg)\n", "docs/b.md: there is nothing at ../c.svg"),
        ("docs/b.md", good["docs/b.md"] + "[a](#none)\n", "docs/b.md: #none names no heading"),
        ("CONTRIBUTING.md", "[b](docs/b.md#two)\n", "CONTRIBUTING.md: docs/b.md#two names no heading"),
        ("include/lora/core/b.hpp", "// docs/c.md\n", "include/lora/core/b.hpp: there is no docs/c.md"),
        ("docs/troubleshooting.md", "- `a … went well`:\n", "no source has 'went well'"),
        ("docs/troubleshooting.md", "- `a … went wrong` · `not\n  here; … or so`:\n", "no source has 'not here;'"),
        ("docs/troubleshooting.md", "- a went wrong: mend it\n", "an entry that is not `MESSAGE`: and what to do"),
    ]

    def check(files):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder).resolve()
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text, encoding="utf-8")
            return list(offences(root))

    failures = [f"clean tree: {line}" for line in check(good)]
    for name, text, *phrases in bad:
        found = check({**good, name: text})
        if len(found) != len(phrases) or not all(phrase in line for phrase, line in zip(phrases, found)):
            failures.append(f"{name}: expected {phrases} alone, got {found}")
    return failures


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    found = self_test() if sys.argv[1:] == ["--self-test"] else list(offences(root))
    return "\n".join(found) if found else 0


if __name__ == "__main__":
    sys.exit(main())
