#pragma once

#include <algorithm>
#include <array>
#include <utility>

#include "lora/core/config.hpp"
#include "lora/core/format.hpp"
#include "lora/data/records/learning_marks.hpp"
#include "lora/data/records/record_reader.hpp"
#include "lora/data/records/table.hpp"
#include "lora/io/files/text_encoding.hpp"
#include "lora/io/formats/csv.hpp"
#include "lora/io/formats/unpack.hpp"
#include "lora/tokenizer/unicode.hpp"

namespace lora::data::detail {

LORA_INLINE bool Table::is_one(const std::string& name, std::string_view text) {
  const std::string ending = io::lower_extension(io::unpacked_name(name));
  if (ending != ".csv" && ending != ".tsv") return false;
  const auto first = std::find_if_not(text.begin(), text.end(), is_json_space);
  return first != text.end() && *first != '{' && *first != '[';
}

/// What separates the columns of a header: the one of comma, semicolon and tab that it has outside of quotes.
LORA_INLINE char separator_of(std::string_view text, const std::string& name) {
  constexpr std::array<char, 3> known{',', ';', '\t'};
  constexpr std::array<std::string_view, 3> called{"commas", "semicolons", "tabs"};
  std::array<Index, 3> counts{};
  bool quoted = false, begun = false, begins = true, of_quotes = false;  // a cell begins, or began with a quote
  for (const char c : text) {
    const bool ends_line = c == '\n' || c == '\r';
    if (ends_line && !quoted && begun) break;
    begun = begun || !is_json_space(c);
    if (begins) of_quotes = c == '"';
    if (c == '"' && of_quotes) quoted = !quoted;
    const auto at = std::find(known.begin(), known.end(), c);
    begins = !quoted && (ends_line || at != known.end());
    if (at != known.end() && !quoted) ++counts[static_cast<std::size_t>(at - known.begin())];
  }
  std::string list;
  for (std::size_t i = 0; i < known.size(); ++i)
    if (counts[i] > 0) list += concat(list.empty() ? "" : " and ", called[i]);
  if (std::count(counts.begin(), counts.end(), 0) < 2)
    fail<FormatError>(name, ":1: the first row has ", std::string_view(list),
                      " outside of quotes; expected one of these ",
                      "to separate the columns, and names that hold another in quotes");
  const auto found = std::max_element(counts.begin(), counts.end());
  return known[static_cast<std::size_t>(found - counts.begin())];
}

/// Throws   FormatError with line and column
LORA_INLINE void expect_utf8(const io::CsvRows& row, std::string_view text, const std::string& name) {
  const std::string_view bytes = text.substr(row.begin(), row.end() - row.begin());
  const std::size_t invalid = tokenizer::unicode::find_invalid_utf8(bytes);
  if (invalid == std::string_view::npos) return;
  io::refuse_wide_text(name, text, false);
  fail<FormatError>(row.place_of(row.begin() + invalid), ": invalid UTF-8; of a spreadsheet, save it as CSV UTF-8");
}

/// The bytes of a first line that only says what separates the columns, as Excel reads and writes it: sep=;
LORA_INLINE std::size_t separator_line(std::string_view text) {
  if (!text.starts_with("sep=") || text.size() < 6 || std::string_view(",;\t").find(text[4]) == text.npos) return 0;
  if (text.substr(5).starts_with("\r\n")) return 7;
  return text[5] == '\n' || text[5] == '\r' ? 6 : 0;
}

LORA_INLINE Table::Table(std::string_view text, const std::string& name) : text_(text), name_(name) {
  const std::size_t begin = separator_line(text);
  separator_ = begin > 0                                                ? text[4]
               : io::lower_extension(io::unpacked_name(name)) == ".tsv" ? '\t'
                                                                        : separator_of(text, name);
  io::CsvRows row(text, name, separator_, io::CsvRows::Cells::kept, begin, begin > 0 ? 2 : 1);
  if (!row.next()) fail<FormatError>(name, ": the file has no records");
  expect_utf8(row, text, name);
  header_ = concat(std::string(1, separator_), text.substr(row.begin(), row.end() - row.begin()));
  rows_ = row.next_begin();
  line_ = row.next_line();
  columns_ = std::move(row.cells());
  while (columns_.size() > 1 && columns_.back().empty()) columns_.pop_back();  // of a spreadsheet, where something was
  if (columns_.size() > 1 && columns_.front().empty()) {                       // of pandas, for its index
    columns_.front() = "Unnamed: 0";
    while (std::find(columns_.begin() + 1, columns_.end(), columns_.front()) != columns_.end())
      columns_.front() += ".1";  // for the index of an index, likewise
  }
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const auto place = [&] { return row.place_of(row.begin_of(static_cast<Index>(i))); };
    if (columns_[i].empty()) fail<FormatError>(place(), ": column ", i + 1, " has no name");
    const auto twin = std::find(columns_.begin(), columns_.begin() + static_cast<std::ptrdiff_t>(i), columns_[i]);
    if (twin != columns_.begin() + static_cast<std::ptrdiff_t>(i))
      fail<FormatError>(place(), ": column ", i + 1, " is called \"", std::string_view(columns_[i]), "\", as column ",
                        twin - columns_.begin() + 1, " is");
  }
}

LORA_INLINE void Table::expect(const RecordColumns& columns, bool need_answer) const {
  for (const auto& [column, field] : columns.columns) {
    if (column == "response" && !need_answer) continue;
    if (std::find(columns_.begin(), columns_.end(), field) != columns_.end()) continue;
    std::string list;
    for (std::size_t i = 0; i < columns_.size() && i < 20; ++i) list += (i > 0 ? ", " : "") + columns_[i];
    fail<FormatError>(name_, ":1: no column \"", std::string_view(field), "\", which is the record's ",
                      std::string_view(column), " by columns of its file; there are ", std::string_view(list),
                      columns_.size() > 20 ? ", ..." : "");
  }
}

LORA_INLINE RecordIndex Table::find_rows(const io::MappedFile& file) const {
  RecordIndex records(RecordLayout::rows);
  io::CsvRows row(text_, name_, separator_, io::CsvRows::Cells::counted, rows_, line_);
  const Index columns = std::ssize(columns_);
  // Of a spreadsheet, in which something stood there: cells that are nothing, or a pair of quotes.
  const auto is_empty_from = [&](std::size_t at) {
    for (std::string_view rest = text_.substr(at, row.end() - at); !rest.empty(); rest.remove_prefix(1)) {
      if (rest.starts_with("\"\"")) rest.remove_prefix(2);
      if (rest.empty()) return true;
      if (rest.front() != separator_) return false;
    }
    return true;
  };
  for (std::size_t before = rows_; row.next(); before = row.next_begin()) {
    if (row.count() > 1 && is_empty_from(row.begin())) continue;
    if (row.count() > columns && !is_empty_from(row.begin_of(columns)))
      fail<FormatError>(row.place_of(row.begin_of(columns)), ": a row of ", row.count(), " cells, expected ", columns,
                        ", as many as the first row names; what holds a separator stands in quotes");
    if (row.count() < columns)
      fail<FormatError>(row.place_of(row.end()), ": a row of ", row.count(), " cell", row.count() == 1 ? "" : "s",
                        ", expected ", columns, ", as many as the first row names; none is left for \"",
                        std::string_view(columns_[static_cast<std::size_t>(row.count())]), "\"");
    records.add(row.begin(), row.line(), name_);
    file.note_read(row.next_begin() - before);
  }
  return records;
}

LORA_INLINE std::string_view Table::bytes(const RecordIndex& records, Index record) const {
  const std::size_t begin = records.begin(record);
  io::CsvRows row(text_, name_, separator_, io::CsvRows::Cells::counted, begin, records.line(record));
  row.next();
  return text_.substr(begin, row.end() - begin);
}

LORA_INLINE io::Json Table::read(const RecordIndex& records, Index record) const {
  io::CsvRows row(text_, name_, separator_, io::CsvRows::Cells::kept, records.begin(record), records.line(record));
  if (!row.next() || row.count() < std::ssize(columns_))
    fail<FormatError>(name_, ": the file was changed while it was read");
  expect_utf8(row, text_, name_);
  io::Json json = io::Json::object();
  auto& fields = json.get_ref<io::Json::object_t&>();
  for (std::size_t i = 0; i < columns_.size(); ++i) fields.emplace_back(columns_[i], std::move(row.cells()[i]));
  return json;
}

/// A number, or true or false as JSON, Python and spreadsheets write them, else the text.
LORA_INLINE io::Json mark_of(std::string text) {
  const std::string lower = ascii_lower(text);
  if (lower == "true" || lower == "false") return lower == "true";
  const bool is_number =
      text.find_first_not_of("+-.0123456789eE") == text.npos && io::Json::accept(std::string_view(text));
  return is_number ? io::parse_json(text, {}) : io::Json(std::move(text));
}

/// The kind of a record whose cells are texts, which only the names of its columns tell.
LORA_INLINE RecordReader kind_of_cells(const io::Json& record, const std::string& where,
                                       const DatasetOptions& options) {
  try {
    return {record, where, options};
  } catch (const FormatError& error) {
    fail<FormatError>(std::string_view(error.what()), "; the first row of a table names its columns");
  }
}

/// Whether a text is a list of turns, as JSON has it or as Python shows it, of which only the former can be read.
LORA_INLINE bool shows_turns(std::string_view text) {
  const auto take = [&](char c) {
    text.remove_prefix(
        std::min(text.size(),
                 static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), is_json_space) - text.begin())));
    const bool is_there = text.starts_with(c);
    if (is_there) text.remove_prefix(1);
    return is_there;
  };
  if (!take('[') || !take('{')) return false;
  const char quote = take('\'') ? '\'' : take('"') ? '"' : '\0';
  const std::string_view name = text.substr(0, text.find(quote));
  text.remove_prefix(std::min(text.size(), name.size() + 1));
  return quote != '\0' && (name == "role" || name == "content") && take(':');
}

LORA_INLINE void read_cells(io::Json& record, const std::string& where, const DatasetOptions& options) {
  const RecordReader reader = kind_of_cells(record, where, options);
  for (auto& [name, value] : record.get_ref<io::Json::object_t&>()) {
    if (!value.is_string()) continue;
    auto& text = value.get_ref<std::string&>();
    const bool is_class = name == options.label_field;
    const bool is_list = reader.reads(name) && (name == "messages" || name == "conversations" || name == "input_ids" ||
                                                name == "labels" || name == "attention_mask" || name == "history" ||
                                                ((name == "prompt" || name == "completion") && shows_turns(text)));
    const bool is_mark = (is_learning_mark(name) || name == "label" || name == "kto_tag") && !reader.has_meaning(name);
    if (text.empty() && (is_class || is_mark || (is_list && !reader.identifies(name)))) {
      value = nullptr;
    } else if (is_list && text.empty()) {
      fail<FormatError>(std::string_view(where), ": \"", std::string_view(name),
                        "\" is empty; expected a list as JSON");
    } else if (is_list) {
      value = io::parse_json(text, concat(where, ": ", std::string_view(name)));
    } else if (is_mark) {
      value = mark_of(std::move(text));
    }
  }
}

}  // namespace lora::data::detail
