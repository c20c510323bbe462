#include "lora/core/printable.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "lora/core/error.hpp"
#include "lora/core/log.hpp"
#include "support/message_of.hpp"

namespace printable_test {

using namespace lora;

TEST_CASE("printable: what a terminal would obey is written out") {
  CHECK(printable("plain text, na\u00EFve \u4E2D \U0001F600") == "plain text, na\u00EFve \u4E2D \U0001F600");
  CHECK(printable("\x1B[31mred\x07\x7F") == "\\x1B[31mred\\x07\\x7F");
  CHECK(printable(std::string_view("a\0b", 3)) == "a\\x00b");
  CHECK(printable("\u009B31m \u202Eabc\u2028\uFEFF") == "\\u009B31m \\u202Eabc\\u2028\\uFEFF");
  CHECK(printable("a\nb\tc\r") == "a\\nb\\tc\\r");
  CHECK(printable("a\nb\tc\r", true) == "a\nb\tc\\r");
  CHECK(printable("\xFF\xE4\xB8z") == "\\xFF\\xE4\\xB8z");
}

TEST_CASE("printable: a long text loses its middle, whole characters at a time") {
  CHECK(shortened("abcdefgh", 8) == "abcdefgh");
  CHECK(shortened("abcdefghi", 8) == "abcdef ... hi");
  CHECK(shortened("abcd\u00E9\u00E9gh\u00E9i", 8) == "abcd\u00E9 ... i");
}

TEST_CASE("printable: no error and no line of the log holds control characters") {
  const std::string name = "evil\x1B]0;title\x07\nname";
  CHECK(test::message_of([&] { fail<FormatError>("tensor ", name, " is odd"); }) ==
        "tensor evil\\x1B]0;title\\x07\\nname is odd");
  CHECK(test::message_of([&] { fail<FormatError>("found ", std::string(70000, 'x')); }).size() < 1100);
  std::string seen;
  const auto former = log::set_sink([&](log::Level, std::string_view text) { seen = text; });
  log::warn("skipping ", name);
  const std::string line = seen;
  log::warn("skipping ", std::string(70000, 'x'));
  CHECK(seen.size() < 1100);
  log::set_sink(former);
  CHECK(line == "skipping evil\\x1B]0;title\\x07\nname");
}

TEST_CASE("printable: exactly what is invisible is written out") {
  CHECK(printable("\x1F\x20\x7E\x7F") == "\\x1F\x20\x7E\\x7F");
  CHECK(printable("\xC2\x80\xC2\x9F\xC2\xA0") == "\\u0080\\u009F\xC2\xA0");
  CHECK(printable("\u200A\u200B\u200D\u200F\u2010") == "\u200A\\u200B\\u200D\\u200F\u2010");
  CHECK(printable("\u2027\u2028\u2029\u202A\u202E\u202F") == "\u2027\\u2028\\u2029\\u202A\\u202E\u202F");
  CHECK(printable("\u205F\u2060\u2069\u206A") == "\u205F\\u2060\\u2069\u206A");
  CHECK(printable("\uFEFE\uFEFF\uFF00") == "\uFEFE\\uFEFF\uFF00");
  CHECK(printable("\U0001F600\U000E0001") == "\U0001F600\U000E0001");
  CHECK(printable("").empty());
  CHECK(printable("a\n\u2028\t", true) == "a\n\\u2028\t");
}

TEST_CASE("printable: a step over UTF-8 takes a character, or what is broken of one") {
  const auto whole = [](std::string_view text) {
    const Utf8Step step = utf8_step(text, 0);
    return step.whole == text.size() && step.broken == 0;
  };
  const auto broken = [](std::string_view text) {
    const Utf8Step step = utf8_step(text, 0);
    return step.whole == 0 ? step.broken : 0;
  };
  for (const char* const text : {"\x01", "\x7F", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xE1\x80\x80", "\xEC\xBF\xBF",
                                 "\xED\x80\x80", "\xED\x9F\xBF", "\xEE\x80\x80", "\xEF\xBF\xBF", "\xF0\x90\x80\x80",
                                 "\xF1\x80\x80\x80", "\xF3\xBF\xBF\xBF", "\xF4\x80\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    CAPTURE(printable(text));
    CHECK(whole(text));
  }
  CHECK(whole(std::string_view("\0", 1)));
  for (const char* const text :
       {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xF5\x80\x80\x80", "\xFF", "\xC2", "\xC2\x7F", "\xC2\xC0",
        "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xE1", "\xE1\xC0\x80", "\xF1z"}) {
    CAPTURE(printable(text));
    CHECK(broken(text) == 1);
  }
  for (const char* const text : {"\xE1\x80", "\xE1\x80\x7F", "\xE1\x80\xC0", "\xF1\x80", "\xF1\x80z\x80"})
    CHECK(broken(text) == 2);
  for (const char* const text : {"\xF1\x80\x80", "\xF1\x80\x80\xC0", "\xF4\x8F\xBFz"}) CHECK(broken(text) == 3);
  CHECK(utf8_step("ab\u00E9", 2).whole == 2);
  CHECK(utf8_step("\u00E9", 1).broken == 1);
  CHECK(printable("a\xE1\x80z\xF1\x80\x80") == "a\\xE1\\x80z\\xF1\\x80\\x80");
}

TEST_CASE("printable: what is left of a shortened text begins and ends at characters, if it has any") {
  CHECK(shortened("", 0).empty());
  CHECK(shortened("ab", 0) == " ... ");
  CHECK(shortened("\u4E2D\u4E2D\u4E2D\u4E2D", 8) == "\u4E2D\u4E2D ... ");
  CHECK(shortened("\u4E2D\u4E2D\u4E2D\u4E2D", 11) == "\u4E2D\u4E2D ... ");
  CHECK(shortened("\u4E2D\u4E2D\u4E2D\u4E2D", 12) == "\u4E2D\u4E2D\u4E2D\u4E2D");
  CHECK(shortened(std::string(9, '\x80'), 8) == " ... ");
}

}  // namespace printable_test
