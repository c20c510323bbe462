#include "lora/io/formats/csv.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "lora/io/formats/json.hpp"
#include "support/message_of.hpp"

#ifdef LORA_WITH_CSV

namespace csv_test {

using namespace lora;
using io::CsvRows;

namespace {

const std::string name = "t.csv";

using Rows = std::vector<std::vector<std::string>>;

Rows rows_of(const std::string& text, char separator = ',') {
  Rows rows;
  CsvRows row(text, name, separator);
  while (row.next()) {
    CHECK(row.count() == std::ssize(row.cells()));
    rows.push_back(row.cells());
  }
  return rows;
}

std::string error_of(const std::string& text, char separator = ',') {
  return test::message_of<FormatError>([&] { (void)rows_of(text, separator); });
}

}  // namespace

TEST_CASE("csv: rows are those that Python's csv module reads, strictly") {
  const io::Json cases = io::read_json(LORA_FIXTURES "/csv/rows.json");
  CHECK(cases.size() > 1500);
  Index refused = 0;
  for (const io::Json& one : cases) {
    const auto text = one["text"].get<std::string>();
    const char separator = one["separator"].get<std::string>()[0];
    CAPTURE(text);
    CAPTURE(separator);
    if (one["rows"].is_null()) {
      ++refused;
      CHECK_FALSE(error_of(text, separator).empty());
    } else {
      CHECK(rows_of(text, separator) == one["rows"].get<Rows>());
    }
  }
  CHECK(refused > 300);
}

TEST_CASE("csv: a row is read again from where it begins, and its place is told") {
  const std::string text = "a,b\r\n\r\n  \n\"c\nd\",e\rf,\"\"";
  struct Place {
    std::string bytes;
    Index line;
  };
  const std::vector<Place> expected = {{"a,b", 1}, {"\"c\nd\",e", 4}, {"f,\"\"", 6}};
  CsvRows row(text, name, ',');
  for (const Place& place : expected) {
    CHECK(row.next());
    CHECK(text.substr(row.begin(), row.end() - row.begin()) == place.bytes);
    CHECK(row.line() == place.line);
    const auto cells = row.cells();
    CsvRows again(text, name, ',', CsvRows::Cells::kept, row.begin(), row.line());
    CHECK(again.next());
    CHECK(again.cells() == cells);
    CHECK(again.next_begin() == row.next_begin());
    CHECK(again.next_line() == row.next_line());
  }
  CHECK(row.begin_of(1) == text.find(",\"\"") + 1);
  CHECK(row.place_of(row.begin_of(1)) == "t.csv:6:3");
  CHECK_FALSE(row.next());
  CHECK_FALSE(row.next());

  CsvRows counted("1,2,3\n", name, ',', CsvRows::Cells::counted);
  CHECK(counted.next());
  CHECK(counted.count() == 3);
  CHECK(counted.cells().empty());
}

TEST_CASE("csv: lines of spaces are blank, those of what separates are not") {
  CHECK(rows_of(" \t\na\n").size() == 1);
  CHECK(rows_of("\t\na\tb\n", '\t') == Rows{{"", ""}, {"a", "b"}});
  CHECK(rows_of(" \na\tb\n", '\t').size() == 1);
  CHECK(rows_of("\" \"\n") == Rows{{" "}});
  CHECK(rows_of("\"\n\n\"\n") == Rows{{"\n\n"}});
}

TEST_CASE("csv: cells and rows of many sizes are whole") {
  for (const std::size_t size : {1u, 127u, 128u, 129u, 65535u, 65536u, 65537u, 300000u}) {
    std::string quoted;
    while (quoted.size() < size) quoted += "y\n,";
    CHECK(rows_of(std::string(size, 'x') + ",\"" + quoted + "\"\nz,\n") ==
          Rows{{std::string(size, 'x'), quoted}, {"z", ""}});
  }
}

TEST_CASE("csv: what is no row is told with its line and column") {
  CHECK(error_of("a,b\nc,\"d\ne,f\n") == "t.csv:2:3: a quote opens here that is never closed");
  CHECK(error_of("\"") == "t.csv:1:1: a quote opens here that is never closed");
  CHECK(
      error_of("a,b\nc,\"d\ne\" ,f\n") ==
      "t.csv:3:3: text behind a closing quote; expected , or the end of the line: a quote inside of quotes is written "
      "twice");
  CHECK(error_of("a\"b,c\n\"x\"y,z\n").starts_with("t.csv:2:4: text behind a closing quote"));
  CHECK(error_of("\"a\"b\tc", '\t').starts_with("t.csv:1:4: text behind a closing quote; expected a tab or the end"));
  CHECK(error_of(std::string("a,b\nc,d\0\n", 9)) == "t.csv:2:4: a zero byte; expected text");
  // Its first two bytes are none of ASCII.
  CHECK(error_of(std::string("\x2D\x4E\0a\0,\0b\0\n", 10)).starts_with("t.csv: the text is UTF-16"));
}

TEST_CASE("csv: a row has at most so many bytes, on one line or on many") {
  const std::string some(50, 'x');
  const auto said = [&](const std::string& row) {
    const std::string table = "a,b\n" + row + "\n\n\n";
    CsvRows rows(table, name, ',', CsvRows::Cells::counted, 0, 1, 100);
    CHECK(rows.next());
    return test::message_of<FormatError>([&] { (void)rows.next(); });
  };
  const std::string sentence =
      ": a row of more than 100 bytes; expected a shorter one, and that the end of each quote is there";
  CHECK(said("c,\"" + some + "\n" + some) == "t.csv:2:3" + sentence);
  CHECK(said("c,\"" + some + some + "\"") == "t.csv:2:1" + sentence);
}

}  // namespace csv_test

#endif
