#include "lora/data/records/record_index.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/message_of.hpp"

namespace record_index_test {

using namespace lora;
using data::RecordIndex;
using data::RecordLayout;
using data::detail::RecordFinder;

namespace {

/// The records of a text and their lines.
struct Found {
  std::vector<std::string> records;
  std::vector<Index> lines;
};

Found found_in(const std::string& text, bool array) {
  const std::string name = "a.json";
  RecordFinder finder(text, name);
  const RecordIndex index = array ? finder.find_objects() : finder.find_lines();
  Found found;
  // Backwards: where a record is doesn't depend on what was read before.
  for (Index i = index.size(); i-- > 0;) {
    found.records.insert(found.records.begin(), std::string(finder.record(index, i)));
    found.lines.insert(found.lines.begin(), index.line(i));
  }
  return found;
}

}  // namespace

TEST_CASE("record index: what follows after records were forgotten lies where it is, past 4 GiB too") {
  data::RecordIndex index(data::RecordLayout::lines);
  const std::size_t far = std::size_t{5} << 30;
  index.add(0, 1, "d.jsonl");
  index.add(far, 2, "d.jsonl");
  index.keep(1);
  index.add(100, 2, "d.jsonl");
  index.add(far, 3, "d.jsonl");
  CHECK(index.begin(1) == 100);
  CHECK(index.begin(2) == far);
}

TEST_CASE("record index: lines, with and without a rule for their numbers") {
  Found found = found_in("{1}\n{22}\r\n{3}", false);
  CHECK(found.records == std::vector<std::string>{"{1}", "{22}", "{3}"});
  CHECK(found.lines == std::vector<Index>{1, 2, 3});
  found = found_in("\n\n{1}\n\n{2}\n\n{3}\n", false);
  CHECK(found.lines == std::vector<Index>{3, 5, 7});
  found = found_in("{1}\n{2}\n \t\n{3}\n{4}\n", false);
  CHECK(found.records == std::vector<std::string>{"{1}", "{2}", "{3}", "{4}"});
  CHECK(found.lines == std::vector<Index>{1, 2, 4, 5});
}

TEST_CASE("record index: objects of an array, several on a line or over several lines") {
  Found found = found_in("[\n{\"a\": \"}\\\"\"\n}, {\"b\":{}},\n\n{}\n,{\"c\":[{}]}]\n", true);
  CHECK(found.records == std::vector<std::string>{"{\"a\": \"}\\\"\"\n}", "{\"b\":{}}", "{}", "{\"c\":[{}]}"});
  CHECK(found.lines == std::vector<Index>{2, 3, 5, 6});
  found = found_in("[\n{\n1\n},\n{\n2\n},\n{\n3\n}\n]", true);
  CHECK(found.lines == std::vector<Index>{2, 5, 8});
  // A line end in a string, where it must not be, is counted too, for the message that it gets.
  found = found_in("[{\"a\": \"x\ny\"},\n{2}, {\"b\": [\n1]}, {3}]", true);
  CHECK(found.lines == std::vector<Index>{1, 3, 3, 4});
}

TEST_CASE("record index: the first ones are kept, and their lines") {
  const std::string name = "a.json";
  for (const bool regular : {true, false}) {
    RecordIndex index(RecordLayout::lines);
    for (const Index line : {2, 3, regular ? 4 : 9, 20}) index.add(static_cast<std::size_t>(10 * line), line, name);
    index.keep(7);
    CHECK(index.size() == 4);
    index.keep(3);
    CHECK(index.size() == 3);
    CHECK(index.line(2) == (regular ? 4 : 9));
    CHECK(index.begin(1) == 30);
  }
  RecordIndex index(RecordLayout::lines);
  CHECK(test::message_of<FormatError>([&] { index.add(0, Index{1} << 32, name); }) ==
        "a.json: a record past line 4294967295; expected fewer");
}

TEST_CASE("record index: files of many gigabytes, and records of some") {
  const std::string name = "a.json";
  RecordIndex index(RecordLayout::lines);
  constexpr std::size_t gib = std::size_t{1} << 30;
  const std::vector<std::size_t> begins = {0, gib, 4 * gib - 1, 4 * gib, 5 * gib, 17 * gib + 3, 17 * gib + 9, 20 * gib};
  for (std::size_t i = 0; i < begins.size(); ++i) index.add(begins[i], static_cast<Index>(i) + 1, name);
  for (std::size_t i = 0; i < begins.size(); ++i) CHECK(index.begin(static_cast<Index>(i)) == begins[i]);
}

TEST_CASE("record index: which records share a line, and of more lines than can be counted none") {
  RecordIndex index(RecordLayout::array);
  CHECK(index.layout() == RecordLayout::array);
  const Index lines[] = {3, 3, 4, 6, 6, 6, 7};
  for (std::size_t i = 0; i < 7; ++i) index.add(10 * i, lines[i], "d.json");
  const bool shared[] = {true, true, false, true, true, true, false};
  for (Index record = 0; record < 7; ++record) {
    CAPTURE(record);
    CHECK(index.line(record) == lines[record]);
    CHECK(index.shares_line(record) == shared[record]);
    CHECK(index.begin(record) == static_cast<std::size_t>(10 * record));
  }
  index.keep(4);
  CHECK(index.size() == 4);
  CHECK_FALSE(index.shares_line(3));
  index.add(100, 4'294'967'295, "d.json");
  CHECK(index.line(4) == 4'294'967'295);
  CHECK(test::message_of<FormatError>([&] { index.add(101, 4'294'967'296, "d.json"); }) ==
        "d.json: a record past line 4294967295; expected fewer");
  CHECK(data::detail::column_at("ab\ncd", 0) == 1);
  CHECK(data::detail::column_at("ab\ncd", 1) == 2);
  CHECK(data::detail::column_at("ab\ncd", 2) == 3);
  CHECK(data::detail::column_at("ab\ncd", 3) == 1);
  CHECK(data::detail::column_at("ab\ncd", 4) == 2);
}

}  // namespace record_index_test
