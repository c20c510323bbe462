#include "lora/tokenizer/unicode.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include "lora/tokenizer/unicode_nfc.hpp"
#include "lora/tokenizer/unicode_tables.hpp"
#include "support/tokenizer_files.hpp"

namespace unicode_test {

using namespace lora;
using namespace lora::tokenizer;

namespace {

/// As checksum in tests/make/unicode_tables.py; `numbers` gives an array of a row's.
template <class Table, class Numbers>
std::uint32_t sum_of(const Table& table, const Numbers& numbers) {
  std::string bytes;
  for (const auto& row : table) {
    const auto of_row = numbers(row);
    bytes.append(reinterpret_cast<const char*>(of_row.data()), sizeof of_row);
  }
  return test::checksum(bytes);
}

}  // namespace

// Texts meet a small part of the code points, and Classes is compared with the tables themselves.
TEST_CASE("unicode: the tables are those of the tokenizers library") {
  using Numbers = std::array<char32_t, 3>;
  const auto range = [](const unicode::CodePointRange& row) { return std::array{row.first, row.last}; };
  CHECK(sum_of(unicode::letters, range) == 0xFEA40E3F);
  CHECK(sum_of(unicode::numbers, range) == 0x56824FAA);
  CHECK(sum_of(unicode::digits, range) == 0x025537CD);
  CHECK(sum_of(unicode::spaces, range) == 0x36121A20);
  CHECK(sum_of(unicode::word_characters, range) == 0x38FEE7B6);
  CHECK(sum_of(unicode::combining_classes, [](const unicode::CombiningClass& row) {
          return Numbers{row.first, row.last, row.value};
        }) == 0x8F2AC8A8);
  CHECK(sum_of(unicode::decompositions, [](const unicode::Decomposition& row) {
          return std::array{row.whole, row.parts[0], row.parts[1], row.parts[2], row.parts[3]};
        }) == 0x30256928);
  CHECK(sum_of(unicode::compositions, [](const unicode::Composition& row) {
          return Numbers{row.first, row.second, row.whole};
        }) == 0x0E49E76A);
}

TEST_CASE("unicode: every code point is written and read back") {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text = "x";
    unicode::append_utf8(text, c);
    const auto read = unicode::code_point_at(text, 1), before = unicode::code_point_before(text, text.size());
    const bool right = read.value == c && read.bytes == text.size() - 1 && before.value == c &&
                       unicode::find_invalid_utf8(text) == text.npos;
    if (!right) CHECK_MESSAGE(right, static_cast<unsigned>(c));
  }
}

TEST_CASE("unicode: invalid UTF-8 is found where it begins, and each broken beginning becomes one U+FFFD") {
  struct Case {
    std::string_view text;
    std::size_t place;
    std::string_view replaced;
  };
  const Case cases[] = {
      {"\x80", 0, "\uFFFD"},
      {"a\xC0\xAF", 1, "a\uFFFD\uFFFD"},                    // overlong
      {"\xE0\x9F\x80", 0, "\uFFFD\uFFFD\uFFFD"},            // overlong
      {"\xED\xA0\x80z", 0, "\uFFFD\uFFFD\uFFFDz"},          // a surrogate
      {"\xF4\x90\x80\x80", 0, "\uFFFD\uFFFD\uFFFD\uFFFD"},  // above U+10FFFF
      {"\xF5", 0, "\uFFFD"},
      {"\xE4\xB8", 0, "\uFFFD"},  // cut short
      {"\xF0\x9F\x98", 0, "\uFFFD"},
      {"\xF0\x9F\x98\xE4\xB8\xAD", 0, "\uFFFD\u4E2D"},
      {"\xE4\xB8\xE4", 0, "\uFFFD\uFFFD"},
      {"12345678\xFF"
       "9",
       8, "12345678\uFFFD9"},
      {"\u4E2D\u4E2D\u4E2D\xE4", 9, "\u4E2D\u4E2D\u4E2D\uFFFD"},
  };
  for (const auto& c : cases) {
    CHECK(unicode::find_invalid_utf8(c.text) == c.place);
    CHECK(unicode::replace_invalid_utf8(std::string(c.text)) == c.replaced);
  }
  CHECK(unicode::find_invalid_utf8("plain") == std::string_view::npos);
  CHECK(unicode::replace_invalid_utf8("\u4E2D \U0001F600") == "\u4E2D \U0001F600");
}

TEST_CASE("unicode: classes of code points are those of the ranges") {
  const auto& classes = unicode::Classes::instance();
  CHECK(classes(U'a') == (unicode::letter | unicode::word));
  CHECK(classes(U'7') == (unicode::number | unicode::digit | unicode::word));
  CHECK(classes(U'_') == unicode::word);
  CHECK(classes(U' ') == unicode::space);
  CHECK(classes(U'.') == 0);
  CHECK(classes(0x3000) == unicode::space);
  CHECK(classes(0x4E2D) == (unicode::letter | unicode::word));
  CHECK(classes(0xBD) == (unicode::number | unicode::digit));  // one half
  CHECK(classes(0x10FFFF) == 0);
  const auto check = [&](const auto& ranges, unicode::Class bit) {
    char32_t next = 0;
    for (const auto& range : ranges) {
      bool right = range.first >= next && range.first <= range.last;
      for (char32_t c = next; c <= range.last; ++c) right = right && ((classes(c) & bit) != 0) == (c >= range.first);
      if (!right) CHECK_MESSAGE(right, static_cast<unsigned>(range.first));
      next = range.last + 1;
    }
    bool none = true;
    for (char32_t c = next; c < 0x110000; ++c) none = none && (classes(c) & bit) == 0;
    CHECK(none);
  };
  check(unicode::letters, unicode::letter);
  check(unicode::numbers, unicode::number);
  check(unicode::spaces, unicode::space);
  check(unicode::digits, unicode::digit);
  check(unicode::word_characters, unicode::word);
}

TEST_CASE("unicode: no code point is of two of the kinds that words are made of") {
  const auto& classes = unicode::Classes::instance();
  bool apart = true;
  for (char32_t c = 0; c < 0x110000; ++c) {
    const int kinds = classes(c) & (unicode::letter | unicode::number | unicode::space);
    apart = apart && (kinds & (kinds - 1)) == 0;
  }
  CHECK(apart);
}

TEST_CASE("unicode: a code point is read from the end of a text, over all lengths") {
  const std::string text = "a\u00E9\u4E2D\U0001F600";
  std::size_t end = text.size();
  for (const std::uint32_t bytes : {4u, 3u, 2u, 1u}) {
    const auto c = unicode::code_point_before(text, end);
    CHECK(c.bytes == bytes);
    end -= c.bytes;
    CHECK(unicode::code_point_at(text, end).value == c.value);
  }
  CHECK(end == 0);
}

}  // namespace unicode_test
