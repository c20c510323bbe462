#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/core/scalar.hpp"

namespace lora::io {

/// The rows of a table as text, one after the other. Cells stand as Python's csv module reads them: a cell that begins
/// with a quote ends with one, and may hold separators, line ends and doubled quotes; in others a quote is a character
/// like any other, and so are spaces. A row ends with LF, CRLF or CR; blank lines are none.
/// Source   RFC 4180, sections 2 and 3
class CsvRows {
 public:
  enum class Cells { counted, kept };

  /// The longest row: what follows a quote that is never closed may be the rest of a large file.
  static constexpr std::size_t longest = std::size_t{1} << 28;

  /// `text` and `name`, which errors begin with, must outlive this. `at`, `line`: where the first row begins. `most`:
  /// bytes of a row.
  /// Throws   FormatError in a build without libcsv
  CsvRows(std::string_view text, const std::string& name, char separator, Cells cells = Cells::kept, std::size_t at = 0,
          Index line = 1, std::size_t most = longest);
  CsvRows(const CsvRows&) = delete;
  CsvRows& operator=(const CsvRows&) = delete;
  ~CsvRows();

  /// Goes to the next row; false at the end of the text.
  /// Throws   FormatError with line and column for a quote that is never closed, text behind a closing quote, a row of
  ///          too many bytes, and zero bytes; after which there is no next row
  bool next();

  std::size_t begin() const;
  /// Behind its last byte, before the end of its line.
  std::size_t end() const;
  /// Behind the end of its line.
  std::size_t next_begin() const;
  /// Of its first byte, counted from 1.
  Index line() const;
  Index next_line() const;
  Index count() const;
  /// What stands in them, if it is kept.
  std::vector<std::string>& cells();

  /// Where a cell of this row begins.
  std::size_t begin_of(Index cell) const;

  /// "name:line:column" of a byte of this row.
  std::string place_of(std::size_t at) const;

 private:
  struct Parser;

  std::string_view line_from(std::size_t at) const;
  bool is_blank(std::string_view line) const;

  std::string_view text_;
  const std::string& name_;
  char separator_;
  std::size_t begin_, end_, next_begin_;
  Index line_, next_line_;
  std::size_t most_;
  std::unique_ptr<Parser> parser_;
};

}  // namespace lora::io

#ifndef LORA_COMPILED
#  include "lora/io/formats/csv.ipp"
#endif
