#include "lora/run/log_file.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <ctime>
#include <string>
#include <string_view>

#include "lora/core/error.hpp"
#include "lora/core/format.hpp"
#include "lora/core/log.hpp"
#include "lora/io/files/file.hpp"
#include "support/file_faults.hpp"
#include "support/temp_folder.hpp"

namespace log_file_test {

using namespace lora;
using log::Level;

TEST_CASE("log file: it ends with the first line that can't be written, and says so once") {
  const test::TempFolder temp;
  run::LogFile file(temp / "a.log", false);
  CHECK_FALSE(file.write(Level::info, "one"));
  const std::string before = io::read_file(temp / "a.log");
  CHECK(before.ends_with(" one\n"));
  {
    const test::FileFaults faults(temp.path(), test::Fault::fails, 1);
    const auto error = file.write(Level::info, "two");
    REQUIRE(error);
    CHECK(error->find("a.log") != std::string::npos);
  }
  // There is room again, but nothing behind the gap.
  CHECK_FALSE(file.write(Level::warning, "three"));
  CHECK(io::read_file(temp / "a.log") == before);
}

TEST_CASE("log file: of a rank, it has the lines with their levels, which go where they went before as well") {
  const test::TempFolder temp;
  std::string said;
  const log::Redirect redirect([&](Level, std::string_view text) { said += concat(text, "\n"); });
  {
    const run::RankLog rank_log(temp.path(), 3, false);
    log::info("begins");
    log::warn("odd");
    const test::FileFaults faults(temp.path(), test::Fault::disk_full, 1);
    log::info("lost");
    log::info("lost too");
  }
  const std::string text = io::read_file(run::RankLog::path(temp.path(), 3));
  CHECK(text.find(" begins\n") != std::string::npos);
  CHECK(text.find(" Warning: odd\n") != std::string::npos);
  CHECK(text.find("too") == std::string::npos);
  const std::string ends = "the log of this rank ends here: ";
  CHECK(said.starts_with("begins\nodd\nlost\n" + ends));
  CHECK(said.find(ends) == said.rfind(ends));
  CHECK(said.ends_with("\nlost too\n"));
}

TEST_CASE("log file: a line begins with the local time to the second, and ends") {
  const test::TempFolder temp;
  const auto stamp = [](std::time_t time) {
    std::tm local{};
    localtime_r(&time, &local);
    char text[32];
    return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S ", &local));
  };
  const std::time_t before = std::time(nullptr);
  {
    run::LogFile file(temp / "a.log", false);
    file.write(Level::info, "one");
    file.write(Level::warning, "two");
  }
  const std::time_t after = std::time(nullptr);
  const std::string text = io::read_file(temp / "a.log");
  bool fits = false;
  for (std::time_t first = before; first <= after; ++first)
    for (std::time_t second = first; second <= after; ++second)
      fits = fits || text == stamp(first) + "one\n" + stamp(second) + "Warning: two\n";
  CHECK_MESSAGE(fits, text);
}

TEST_CASE("log file: it goes on behind what is there or begins a new file, that of a rank as well") {
  const test::TempFolder temp;
  const auto write = [&](bool append, const char* text) {
    return run::LogFile(temp / "a.log", append).write(Level::info, text);
  };
  const auto lines = [](const io::Path& path) {
    const std::string text = io::read_file(path);
    return std::count(text.begin(), text.end(), '\n');
  };
  CHECK_FALSE(write(false, "one"));
  CHECK_FALSE(write(true, "two"));
  CHECK(lines(temp / "a.log") == 2);
  CHECK_THROWS_AS(write(false, "three"), IoError);
  CHECK(lines(temp / "a.log") == 2);
  CHECK(run::RankLog::path("out", 12) == io::Path("out/logs/rank-12.log"));
  const log::Redirect silent([](Level, std::string_view) {});
  for (const bool append : {false, true}) {
    const run::RankLog rank_log(temp / "run", 1, append);
    log::info("a line");
    CHECK(lines(temp / "run/logs/rank-1.log") == (append ? 2 : 1));
  }
  CHECK_THROWS_AS(run::RankLog(temp / "run", 1, false), IoError);
}

}  // namespace log_file_test
