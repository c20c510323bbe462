#include "lora/run/log_file.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "lora/core/format.hpp"
#include "lora/core/log.hpp"
#include "lora/io/file.hpp"
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

}  // namespace log_file_test
