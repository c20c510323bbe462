#include "lora/core/error.hpp"

#include <doctest/doctest.h>

#include "lora/core/log.hpp"

namespace error_test {

using namespace lora;

TEST_CASE("error: parts become one message, numbers in their shortest form") {
  CHECK(concat("a", 'b', std::string("c"), std::string_view("d")) == "abcd");
  CHECK(concat(-3, ' ', 7u, ' ', 0.1, ' ', 0.1f, ' ', 1e300, ' ', true, false) == "-3 7 0.1 0.1 1e+300 truefalse");
  CHECK(concat() == "");
  const double none = std::numeric_limits<double>::quiet_NaN();  // whose sign says nothing
  CHECK(concat(none, ' ', -none, ' ', static_cast<float>(none), ' ', -static_cast<float>(none)) == "nan nan nan nan");
}

TEST_CASE("error: fail throws the kind that was asked for, and every kind is an Error") {
  CHECK_THROWS_WITH_AS(fail<ShapeError>("[x] ", 3, " rows"), "[x] 3 rows", ShapeError);
  CHECK_THROWS_AS(fail<FormatError>("x"), FormatError);
  CHECK_THROWS_AS(fail<IoError>("x"), Error);
  CHECK_THROWS_AS(fail<ConfigError>("x"), std::runtime_error);
  CHECK_THROWS_AS(fail<DeviceError>("x"), Error);
  CHECK_THROWS_WITH_AS(fail("x"), "x", Error);
}

TEST_CASE("error: a part of more than a thousand bytes loses its middle, in errors and warnings") {
  const auto thrown = [](const std::string& part) {
    try {
      fail<FormatError>("a: ", part, ".");
    } catch (const FormatError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string fits(1000, 'x'), long_one = std::string(900, 'x') + std::string(3000, 'y') + std::string(900, 'z');
  CHECK(thrown(fits) == "a: " + fits + ".");
  const std::string kept = std::string(750, 'x') + " ... " + std::string(250, 'z');
  CHECK(thrown(long_one) == "a: " + kept + ".");
  CHECK(thrown(fits + "x") == "a: " + std::string(750, 'x') + " ... " + std::string(250, 'x') + ".");
  std::string seen;
  auto former = log::set_sink([&](log::Level, std::string_view text) { seen += text; });
  log::warn(long_one);
  log::set_sink(std::move(former));
  CHECK(seen == kept);
}

TEST_CASE("error: the log's receiver gets level and sentence, and can be put back") {
  std::string seen;
  auto former = log::set_sink([&](log::Level level, std::string_view text) {
    seen += concat(level == log::Level::warning ? "W:" : "I:", text, ";");
  });
  log::info("a ", 1);
  log::warn("b");
  log::set_sink(std::move(former));
  CHECK(seen == "I:a 1;W:b;");
}

}  // namespace error_test
