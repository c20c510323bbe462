#include "lora/core/log.hpp"

#include <doctest/doctest.h>

#include <string>
#include <thread>
#include <utility>

namespace log_test {

using namespace lora;

namespace {

log::Sink into(std::string& text) {
  return [&text](log::Level level, std::string_view words) {
    text += concat(level == log::Level::warning ? "W:" : "", words, ";");
  };
}

}  // namespace

TEST_CASE("log: a redirect gets what its own thread logs, until it ends") {
  std::string all, outer, inner;
  auto former = log::set_sink(into(all));
  log::info("first");
  {
    const log::Redirect redirect(into(outer));
    log::info("second");
    std::thread([] { log::info("another thread's"); }).join();
    {
      const log::Redirect nested([&](log::Level level, std::string_view words) { into(inner)(level, words); });
      log::warn("third");
      nested.pass_on(log::Level::info, "passed on");
    }
    redirect.pass_on(log::Level::info, "to all");
    log::info("fourth");
  }
  log::info("last");
  {
    const log::Redirect silent{log::Sink()};
    log::info("not heard");
  }
  log::set_sink(std::move(former));
  CHECK(all == "first;another thread's;to all;last;");
  CHECK(outer == "second;passed on;fourth;");
  CHECK(inner == "W:third;");
}

}  // namespace log_test
