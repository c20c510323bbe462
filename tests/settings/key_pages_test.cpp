// docs/keys.md, keys_run.md and keys_other.md have a row for each key, which begins with what --help says of it, and a
// link to the page that explains it.

#include <doctest/doctest.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "lora/io/files/read_file.hpp"
#include "lora/settings/keys.hpp"
#include "lora/settings/settings.hpp"

namespace key_pages_test {

using namespace lora;
using namespace lora::settings;

namespace {

struct Row {
  std::string group, text;
};

std::string text_of(std::string_view page) { return io::read_file(concat(LORA_FIXTURES "/../../docs/", page)); }

/// The rows of a page, each in one line: "- ..." and the indented lines behind it.
std::vector<Row> rows_of(const char* page) {
  std::istringstream lines(text_of(page));
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

/// What GitHub makes of a heading of plain words: "## Afterward: lora eval" is afterward-lora-eval.
std::string anchor_of(std::string_view heading) {
  std::string anchor;
  for (const char c : heading.substr(std::min(heading.find_first_not_of("# "), heading.size()))) {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-')
      anchor += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (c == ' ') anchor += '-';
  }
  return anchor;
}

/// What a link of docs/ leads to: a page, or the part of it below a heading, up to the next one.
std::string linked_text(std::string_view link) {
  const auto hash = link.find('#');
  std::istringstream page(text_of(link.substr(0, hash)));
  std::string text;
  bool is_within = hash == link.npos;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("#") && hash != link.npos) is_within = anchor_of(line) == link.substr(hash + 1);
    if (is_within) text += line + "\n";
  }
  return text;
}

/// Where a row's links lead to, but for the pages of keys, which explain none.
std::vector<std::string> links_of(std::string_view row) {
  std::vector<std::string> links;
  for (auto at = row.find("]("); at != row.npos; at = row.find("](", at + 1)) {
    const std::string_view link = row.substr(at + 2, row.find(')', at) - at - 2);
    if (!link.starts_with("key")) links.emplace_back(link);
  }
  return links;
}

bool has_word(std::string_view text, std::string_view word) {
  const auto in_word = [&](std::size_t at) {
    return at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) || text[at] == '_');
  };
  for (auto at = text.find(word); at != text.npos; at = text.find(word, at + 1))
    if (!in_word(at - 1) && !in_word(at + word.size())) return true;
  return false;
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

TEST_CASE("keys: each row links to what names the key") {
  CHECK(links_of("- a: B [c](keys.md#d), [e](f.md#g), [h](i.md).") == std::vector<std::string>{"f.md#g", "i.md"});
  CHECK(anchor_of("## 4. Look at: `a_b`") == "4-look-at-a_b");
  CHECK((linked_text("keys.md#curriculum").starts_with("## curriculum\n- use_curriculum") &&
         !has_word(linked_text("keys.md#curriculum"), "lora_rank") && has_word(linked_text("keys.md"), "lora_rank")));
  CHECK((has_word("a_b b", "b") && has_word("b", "b") && has_word("`b`:", "b")));
  CHECK_FALSE((has_word("a_b, bc, ab", "b") || has_word("", "b")));
  for (const char* page : {"keys.md", "keys_run.md", "keys_other.md"})
    for (const Row& row : rows_of(page)) {
      CAPTURE(row.text);
      const std::string name = row.text.substr(2, row.text.find_first_of(" :", 2) - 2);
      const std::vector<std::string> links = links_of(row.text);
      CHECK(
          std::any_of(links.begin(), links.end(), [&](const auto& link) { return has_word(linked_text(link), name); }));
    }
}

}  // namespace key_pages_test
