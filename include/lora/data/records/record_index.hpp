#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/core/scalar.hpp"
#include "lora/io/files/mapped_file.hpp"

namespace lora::data {

/// How the records of a file are laid out: one a line, in an array of JSON, or as rows of a table.
enum class RecordLayout { lines, array, rows };

/// Where the records of one file begin: four bytes of memory each, so that the text itself can be as large as the disk
/// allows. Their lines are a rule, such as one record a line, where they follow one; else four bytes more.
class RecordIndex {
 public:
  explicit RecordIndex(RecordLayout layout) : layout_(layout) {}

  Index size() const { return static_cast<Index>(begins_.size()); }
  RecordLayout layout() const { return layout_; }
  std::size_t begin(Index record) const;
  /// Counted from 1.
  Index line(Index record) const;

  /// Whether another record begins on the same line.
  bool shares_line(Index record) const;

  /// `begin` and `line`: not before those of the record before.
  /// Throws   FormatError for more lines than can be counted
  void add(std::size_t begin, Index line, const std::string& file);

  /// Forgets all but the first ones.
  void keep(Index count);

 private:
  static constexpr std::size_t span = std::size_t{1} << 32;

  RecordLayout layout_;
  std::deque<std::uint32_t> begins_;  // modulo the span; a vector that grows needs two to three times its size
  std::vector<Index> passes_;         // the records from which on the begins are in the next span
  Index first_line_ = 1;
  Index lines_each_ = 1;
  std::deque<std::uint32_t> lines_;  // empty: they follow the rule
};

namespace detail {

/// Of a place in a text, from 1 on.
Index column_at(std::string_view text, std::size_t at);

inline bool is_json_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/// Finds where the records of one file begin and end without parsing them: 100 MB take a fraction of a second.
class RecordFinder {
 public:
  /// `file`: whose pages are released once they were read; null: the text lies in memory.
  RecordFinder(std::string_view text, const std::string& name, const io::MappedFile* file = nullptr)
      : text_(text), name_(name), file_(file) {}

  /// One record a line.
  RecordIndex find_lines();

  /// The object at the beginning of the text if it spans several lines, else nothing.
  std::string_view spread_object();

  /// The objects of a JSON array.
  RecordIndex find_objects();

  /// The bytes of a record that was found in the text.
  std::string_view record(const RecordIndex& records, Index record);

 private:
  void skip_space();
  bool take(char c);
  /// `before`: how many records stand before this one.
  void skip_object(Index first_line, Index before = 0);
  /// To the closing quote, or the end of the text.
  void skip_string();
  [[noreturn]] void fail_here(std::string_view expected, Index before) const;
  void release();

  std::string_view text_;
  const std::string& name_;
  const io::MappedFile* file_;
  std::size_t at_ = 0;
  std::size_t released_ = 0;
  Index line_ = 1;
};

}  // namespace detail
}  // namespace lora::data

#ifndef LORA_COMPILED
#  include "lora/data/records/record_index.ipp"
#endif
