#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "lora/core/scalar.hpp"
#include "lora/data/records/dataset_options.hpp"
#include "lora/data/records/record_columns.hpp"
#include "lora/data/records/record_index.hpp"
#include "lora/io/files/mapped_file.hpp"
#include "lora/io/formats/json.hpp"

namespace lora::data::detail {

/// A data file that is a table as text: its first row names the columns, each other one is a record.
class Table {
 public:
  /// Whether a file of this name and text is one: .csv or .tsv, but for a name that JSON was given.
  static bool is_one(const std::string& name, std::string_view text);

  /// Reads the header. `text` and `name` must outlive this.
  /// Throws   FormatError if it can't be told what separates the columns, or two have one name, or one none, for a
  ///          header that is no row or no UTF-8, and in a build without libcsv
  Table(std::string_view text, const std::string& name);

  /// Throws   FormatError if columns of a file name one that isn't there; the answer's only if it is needed
  void expect(const RecordColumns& columns, bool need_answer) const;

  /// Finds where the records begin; what was read is noted in `file`.
  /// Throws   FormatError with line and column for rows that are none, and those with more or fewer cells than columns
  RecordIndex find_rows(const io::MappedFile& file) const;

  /// The bytes of a record, without the end of its line.
  std::string_view bytes(const RecordIndex& records, Index record) const;

  /// Its cells as texts, under the names of their columns.
  /// Throws   FormatError with line and column for what is no UTF-8
  io::Json read(const RecordIndex& records, Index record) const;

  /// What says, beside a record's bytes, which record it is.
  const std::string& header() const { return header_; }

 private:
  std::string_view text_;
  const std::string& name_;
  char separator_ = ',';
  std::string header_;
  std::vector<std::string> columns_;
  std::size_t rows_ = 0;
  Index line_ = 1;  // of the first of them
};

/// Has the cells of a record, under names that are read, hold what a record of JSON has there: lists and objects are
/// JSON in a cell, marks of what is learned are numbers or true and false, and an empty cell is missing where no text
/// is read. What other cells hold is a text, whatever it looks like.
/// Throws   FormatError, beginning with `where`, for a cell whose JSON is broken
void read_cells(io::Json& record, const std::string& where, const DatasetOptions& options);

}  // namespace lora::data::detail

#ifndef LORA_COMPILED
#  include "lora/data/records/table.ipp"
#endif
