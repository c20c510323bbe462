#!/usr/bin/env python3
"""Writes include/lora/tokenizer/unicode_tables.hpp: what the `tokenizers` library holds for a letter, a number, white space, a digit and a word
character, and its canonical decompositions, compositions and combining classes. The library takes these from several Unicode versions,
so every code point is put through it and the answers are written down.

    python tests/make/unicode_tables.py [OUTPUT]

It prints the tables' checksums, which tests/tokenizer/unicode_test.cpp has.
"""

import pathlib
import struct
import sys
import unicodedata
import zlib

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

OUTPUT = pathlib.Path(__file__).resolve().parents[2] / "include/lora/tokenizer/unicode_tables.hpp"
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
TEXT = "".join(map(chr, CODE_POINTS))
LETTERS, NUMBERS = "\\p{L} of the regexes that split text.", "\\p{N} of the regexes that split text."
HANGUL = range(0xAC00, 0xAC00 + 11172)


def ranges(code_points):
    """Closed ranges; one may span the surrogates, which no text holds."""
    found = []
    for c in sorted(code_points):
        if found and (found[-1][1] + 1 == c or (found[-1][1] == 0xD7FF and c == 0xE000)):
            found[-1][1] = c
        else:
            found.append([c, c])
    return found


def by_regex(pattern):
    pieces = pre_tokenizers.Split(Regex(pattern), "removed").pre_tokenize_str(TEXT)
    kept = {CODE_POINTS[i] for _, (begin, end) in pieces for i in range(begin, end)}
    return set(CODE_POINTS) - kept


def by_digits():
    """Runs of digits and of others take turns; U+0000 is no digit."""
    pieces = pre_tokenizers.Digits(individual_digits=False).pre_tokenize_str(TEXT)
    return {CODE_POINTS[i] for _, (begin, end) in pieces[1::2] for i in range(begin, end)}


def added_token_context(**flags):
    """A tokenizer that knows only <x>, to see which neighbors it takes or minds."""
    tokenizer = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    tokenizer.add_tokens([AddedToken("<x>", normalized=False, **flags)])
    return tokenizer


def by_single_word():
    tokenizer = added_token_context(single_word=True)
    found = set()
    for start in range(0, len(CODE_POINTS), 4096):
        block = CODE_POINTS[start : start + 4096]
        encoding = tokenizer.encode("".join("\n" + chr(c) + "<x>" for c in block))
        seen = {begin for token, (begin, _) in zip(encoding.ids, encoding.offsets) if token == 1}
        found |= {c for i, c in enumerate(block) if 5 * i + 2 not in seen}
    return found


def by_lstrip():
    tokenizer = added_token_context(lstrip=True)
    found = set()
    for start in range(0, len(CODE_POINTS), 4096):
        block = CODE_POINTS[start : start + 4096]
        encoding = tokenizer.encode("".join("a" + chr(c) + "<x>" for c in block))
        seen = {begin for token, (begin, _) in zip(encoding.ids, encoding.offsets) if token == 1}
        found |= {c for i, c in enumerate(block) if 5 * i + 1 in seen}
    return found


def combining_classes(nfd):
    """The class of every mark, from how it and marks of known classes swap places; the marks come from an old Unicode version that
    the library is sure to know."""
    known = {}
    for c in CODE_POINTS:
        value = unicodedata.ucd_3_2_0.combining(chr(c))
        if value and nfd(chr(c)) == chr(c):
            known.setdefault(value, chr(c))
    low, high = known[1], known[240]
    classes = {}
    steps = sorted(known.items())
    for c in CODE_POINTS:
        mark = chr(c)
        if nfd(mark) != mark:
            continue
        after_low, before_high = nfd(mark + low) != mark + low, nfd(high + mark) != high + mark
        if not after_low and not before_high:
            continue
        below = [value for value, other in steps if nfd(mark + other) != mark + other]  # class of mark > value
        above = [value for value, other in steps if nfd(other + mark) != other + mark]  # 0 < class of mark < value
        between = [value for value, _ in steps if value not in below and value not in above]
        assert len(between) <= 1, hex(c)
        classes[c] = between[0] if between else max(below, default=0) + 1
        assert between or classes[c] not in known, hex(c)
    return classes


def compositions(nfd, nfc):
    """(first, second) -> composite, Hangul apart."""
    pairs = {}
    for c in CODE_POINTS:
        parts = nfd(chr(c))
        if len(parts) < 2 or c in HANGUL or nfc(parts) != chr(c):
            continue
        first = nfc(parts[:-1])
        assert len(first) == 1 and nfc(first + parts[-1]) == chr(c), hex(c)
        pairs[(ord(first), ord(parts[-1]))] = c
    return pairs


def rows(items, width=116):
    lines, line = [], "   "
    for item in items:
        if len(line) + len(item) + 2 > width:
            lines.append(line)
            line = "   "
        line += " " + item + ","
    lines.append(line)
    return "\n".join(lines)


def range_table(name, doc, code_points):
    body = rows("{0x%X, 0x%X}" % (a, b) for a, b in ranges(code_points))
    return f"/// {doc}\ninline constexpr CodePointRange {name}[] = {{\n{body}\n}};\n"


def checksum(table):
    """CRC-32 of a table's numbers, 32 bits each."""
    numbers = [number for row in table for number in row]
    return "0x%08X" % zlib.crc32(struct.pack(f"<{len(numbers)}I", *numbers))


def main():
    nfd, nfc = normalizers.NFD().normalize_str, normalizers.NFC().normalize_str
    letters, numbers, spaces = by_regex(r"\p{L}"), by_regex(r"\p{N}"), by_regex(r"\s")
    digits, word_characters = by_digits(), by_single_word()
    assert spaces == by_lstrip(), "the two regex libraries differ in white space: give each its own table"
    decompositions = {}
    for c in CODE_POINTS:
        parts = nfd(chr(c))
        if parts != chr(c) and c not in HANGUL:
            decompositions[c] = [ord(p) for p in parts]
    assert all(len(nfd(chr(c))) in (2, 3) and nfc(nfd(chr(c))) == chr(c) for c in HANGUL)
    assert max(map(len, decompositions.values())) <= 4
    classes = combining_classes(nfd)
    grouped = {}
    for c, value in classes.items():
        grouped.setdefault(value, []).append(c)
    class_rows = sorted((a, b, value) for value, members in grouped.items() for a, b in ranges(members))
    pairs = compositions(nfd, nfc)

    text = f"""#pragma once

// Generated by tests/make/unicode_tables.py from tokenizers {tokenizers.__version__}. Do not edit.
// clang-format off

#include <cstdint>

namespace lora::tokenizer::unicode {{

/// Both ends belong to it.
struct CodePointRange {{
  char32_t first;
  char32_t last;
}};

struct CombiningClass {{
  char32_t first;
  char32_t last;
  std::uint8_t value;
}};

/// A full canonical decomposition, filled up with zeros.
struct Decomposition {{
  char32_t whole;
  char32_t parts[4];
}};

struct Composition {{
  char32_t first;
  char32_t second;
  char32_t whole;
}};

{range_table("letters", LETTERS, letters)}
{range_table("numbers", NUMBERS, numbers)}
{range_table("digits", "What the pre-tokenizer Digits takes for one.", digits)}
{range_table("spaces", "White space.", spaces)}
{range_table("word_characters", "What an added token with single_word must not touch.", word_characters)}
/// Marks that canonical ordering may move.
inline constexpr CombiningClass combining_classes[] = {{
{rows("{0x%X, 0x%X, %d}" % row for row in class_rows)}
}};

/// By code point. Hangul syllables are left out: they follow a formula.
inline constexpr Decomposition decompositions[] = {{
{rows("{0x%X, {%s}}" % (c, ", ".join("0x%X" % p for p in parts)) for c, parts in sorted(decompositions.items()))}
}};

/// By first and second part. Hangul syllables are left out.
inline constexpr Composition compositions[] = {{
{rows("{0x%X, 0x%X, 0x%X}" % (a, b, c) for (a, b), c in sorted(pairs.items()))}
}};

}}  // namespace lora::tokenizer::unicode
"""
    output = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else OUTPUT
    output.write_text(text)
    print(f"{output}: {len(letters)} letters, {len(numbers)} numbers, {len(spaces)} spaces, {len(decompositions)} decompositions, "
          f"{len(pairs)} compositions, {len(classes)} marks")
    tables = {"letters": ranges(letters), "numbers": ranges(numbers), "digits": ranges(digits), "spaces": ranges(spaces),
              "word_characters": ranges(word_characters), "combining_classes": class_rows,
              "decompositions": [[c, *parts, *[0] * (4 - len(parts))] for c, parts in sorted(decompositions.items())],
              "compositions": [[*pair, c] for pair, c in sorted(pairs.items())]}
    for name, table in tables.items():
        print(f"{name}: {checksum(table)}")


if __name__ == "__main__":
    main()
