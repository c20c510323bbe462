#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/core/printable.hpp"
#include "lora/core/scalar.hpp"
#include "lora/data/records/record_columns.hpp"
#include "lora/io/files/path.hpp"
#include "lora/io/files/paths.hpp"
#include "lora/io/formats/unpack.hpp"

namespace lora::data {

/// A file of records, or a folder of such files, and what is taken of it.
struct DataFile {
  std::string path;
  std::optional<double> weight{};      ///< of its share in a mix, among the weights of all files
  std::string name{};                  ///< in logs and results; empty: from the path
  std::string split{};                 ///< of its records, as `slice_of` reads it; empty: all
  std::optional<Index> num_samples{};  ///< so many: the first ones or, of a file with fewer, some more than once
  std::optional<Index> max_samples{};  ///< the first ones, of these
  RecordColumns columns{};             ///< where its records' fields have names of their own

  DataFile() = default;
  /// All of the file, so that a path can stand for one.
  template <std::convertible_to<std::string> P>
  DataFile(P&& file) : path(std::forward<P>(file)) {}

  bool operator==(const DataFile&) const = default;
  /// Whether it is a path and nothing more.
  bool is_path() const {
    return !weight && name.empty() && split.empty() && !num_samples && !max_samples && columns.empty();
  }

  /// Leaves of the first ones at most so many.
  void keep(Index most) { max_samples = std::min(most, max_samples.value_or(most)); }
};

/// The file of a path or, of a folder, its files in the order of their names, but for those that begin with a dot.
/// Throws   IoError for a folder without one; FormatError for one of files of several types, or none of records
std::vector<std::string> files_at(const std::string& path);

/// The records [first, second) of `count` that a split of files has, as `datasets` reads it: train or all, or
/// train[10:20], train[-100:], train[:10%], where percents are rounded to the nearest record, or the even one of two.
/// Returns   nothing for what is no such split
std::optional<std::pair<Index, Index>> slice_of(std::string_view split, Index count);

/// A sentence about what is no split of files.
std::string told_split(std::string_view split);

/// What a path ends with, of a folder as well.
io::Path last_part(const io::Path& path);

/// A name for each file: its own, else the path's last part without extensions; -2, -3 … where one is there already.
std::vector<std::string> names_of(std::span<const DataFile> files);

}  // namespace lora::data

#ifndef LORA_COMPILED
#  include "lora/data/records/data_file.ipp"
#endif
