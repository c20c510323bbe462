#include "lora/core/printable.hpp"

#include <doctest/doctest.h>

#include <string>

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

}  // namespace printable_test
