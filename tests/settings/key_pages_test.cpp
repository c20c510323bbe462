// docs/keys.md, keys_run.md and keys_other.md have a row for each key, which begins with what --help says of it.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "lora/io/read_file.hpp"
#include "lora/settings/keys.hpp"
#include "lora/settings/settings.hpp"

namespace key_pages_test {

using namespace lora;
using namespace lora::settings;

namespace {

struct Row {
  std::string group, text;
};

/// The rows of a page, each in one line: "- ..." and the indented lines behind it.
std::vector<Row> rows_of(const char* page) {
  std::istringstream lines(io::read_file(concat(LORA_FIXTURES "/../../docs/", page)));
  std::vector<Row> rows;
  std::string group;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("## ")) group = line.substr(3);
    if (line.starts_with("- ")) rows.push_back({group, line});
    if (line.starts_with("  ") && !rows.empty()) rows.back().text += line.substr(1);
  }
  return rows;
}

/// What a row begins with: "- NAME (DEFAULT): HELP.", and in front of the default the commands of a key that train
/// lacks.
std::string beginning_of(const Key& key) {
  std::string brackets;
  if (!(key.commands & train_command)) {
    for (const Command command : all_commands)
      if (key.commands & command) brackets += concat(brackets.empty() ? "of " : ", ", name_of(command));
  }
  const std::string otherwise = default_text(key);
  if (!otherwise.empty()) brackets += concat(brackets.empty() ? "" : "; ", std::string_view(otherwise));
  if (!brackets.empty()) brackets = concat(" (", std::string_view(brackets), ")");
  return concat("- ", key.name, std::string_view(brackets), ": ", key.help, ".");
}

std::string of_first_alone(const std::vector<std::string>& first, const std::vector<std::string>& second) {
  std::string alone;
  for (const std::string& name : first)
    if (std::find(second.begin(), second.end(), name) == second.end()) alone += name + " ";
  return alone;
}

}  // namespace

TEST_CASE("keys: the manual has a row for each, in the order of the help page, with its default and its sentence") {
  std::vector<Row> rows;
  for (const char* page : {"keys.md", "keys_run.md", "keys_other.md"})
    for (const Row& row : rows_of(page)) rows.push_back(row);
  std::vector<std::string> names, shown;
  for (const Key& key : keys()) names.emplace_back(key.name);
  for (const Row& row : rows) shown.push_back(row.text.substr(2, row.text.find_first_of(" :", 2) - 2));
  CHECK(of_first_alone(names, shown) == "");  // keys without a row
  CHECK(of_first_alone(shown, names) == "");  // rows without a key
  REQUIRE(shown == names);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Key& key = keys()[i];
    CAPTURE(names[i]);
    CHECK(rows[i].group == key.group);
    const std::string beginning = beginning_of(key);
    CHECK(rows[i].text.substr(0, beginning.size()) == beginning);
    CHECK((rows[i].text.size() == beginning.size() || rows[i].text[beginning.size()] == ' '));
  }
}

}  // namespace key_pages_test
