#include "lora/core/error.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

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

TEST_CASE("error: digits, significant digits and sizes are those that were asked for") {
  CHECK(fixed(1.25, 3) == "1.250");
  CHECK(fixed(-0.04, 1) == "-0.0");
  CHECK(fixed(2.5, 0) == "2");
  CHECK(fixed(1e300, 2).size() == 304);
  CHECK(fixed(-std::numeric_limits<double>::quiet_NaN(), 2) == "nan");
  CHECK(significant(123456.0, 3) == "1.23e+05");
  CHECK(significant(0.5, 3) == "0.5");
  CHECK(plain_number(123456.4, 3) == "123456");
  CHECK(plain_number(1000.0, 3) == "1000");
  CHECK(plain_number(12.345, 3) == "12.3");
  CHECK(plain_number(0.012345, 3) == "0.0123");
  CHECK(significant(1.0 / 3, 5) == "0.33333");
  CHECK(significant(-std::numeric_limits<double>::quiet_NaN(), 3) == "nan");
  CHECK(size_text(0.0) == "0.0 MiB");
  CHECK(size_text(std::size_t{13'107'200}) == "12.5 MiB");
  CHECK(size_text(std::size_t{1} << 20) == "1.0 MiB");
  CHECK(size_text((std::size_t{1} << 30) - 1) == "1024.0 MiB");
  CHECK(size_text(std::size_t{1} << 30) == "1.00 GiB");
  CHECK(size_text(0x1.8p30) == "1.50 GiB");
}

TEST_CASE("error: numbers keep their type's whole range") {
  CHECK(concat(std::numeric_limits<long long>::min()) == "-9223372036854775808");
  CHECK(concat(std::numeric_limits<unsigned long long>::max()) == "18446744073709551615");
  CHECK(concat(-std::numeric_limits<double>::denorm_min()) == "-5e-324");
  CHECK(concat(16777217.0f, ' ', 16777217.0, ' ', -0.0) == "16777216 16777217 -0");
  CHECK(concat(std::numeric_limits<double>::infinity(), ' ', -std::numeric_limits<float>::infinity()) == "inf -inf");
  CHECK(concat('\0', "a") == std::string("\0a", 2));
}

}  // namespace error_test
