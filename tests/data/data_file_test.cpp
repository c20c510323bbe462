#include "lora/data/records/data_file.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace data_file_test {

using namespace lora;
using data::DataFile;

TEST_CASE("data file: a name is its own or its file's, and no two are the same") {
  const auto names = [](const std::vector<DataFile>& files) { return data::names_of(files); };
  using Names = std::vector<std::string>;
  CHECK(names({"folder/a.jsonl", "b.json.gz", "c.txt.zst", "d"}) == Names{"a", "b", "c", "d"});
  CHECK(names({"a.jsonl", "b/a.json", "c/a.txt"}) == Names{"a", "a-2", "a-3"});
  DataFile named("x.jsonl"), later("y.jsonl");
  named.name = "a";
  later.name = "a-2";
  CHECK(names({named, "a.jsonl", later}) == Names{"a", "a-2", "a-2-2"});
  named.name = "a\tb\x1B";
  CHECK(names({named}) == Names{"a\\tb\\x1B"});
  CHECK(names({}).empty());
}

TEST_CASE("data file: a path alone is a file of which nothing more is said") {
  DataFile file("a");
  CHECK(file.is_path());
  file.weight = 1;
  CHECK_FALSE(file.is_path());
  file = "a";
  file.name = "n";
  CHECK_FALSE(file.is_path());
  file = "a";
  file.max_samples = 1;
  CHECK_FALSE(file.is_path());
}

}  // namespace data_file_test
