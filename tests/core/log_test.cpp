#include "lora/core/log.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <utility>

#include "support/process.hpp"

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

TEST_CASE("log: without a sink messages go to standard error, warnings by that name") {
  const test::Ending end = test::run_apart([](int out) {
    dup2(out, STDERR_FILENO);
    log::info("one ", 1);
    log::warn("two\nlines\tand a bell\a");
  });
  CHECK(end.text == "one 1\nWarning: two\nlines\tand a bell\\x07\n");
}

TEST_CASE("log: no sink at all is silence, and what is told at length is told whole") {
  std::string seen;
  auto former = log::set_sink(into(seen));
  log::info(std::string(2000, 'x'));
  CHECK(seen == std::string(2000, 'x') + ";");
  const log::Sink mine = log::set_sink(nullptr);
  CHECK(mine);
  CHECK_NOTHROW(log::warn("nobody hears it"));
  CHECK_FALSE(log::set_sink(std::move(former)));
  CHECK(seen.size() == 2001);
}

}  // namespace log_test
