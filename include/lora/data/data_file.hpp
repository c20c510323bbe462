#pragma once

#include <algorithm>
#include <concepts>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/core/printable.hpp"
#include "lora/core/scalar.hpp"
#include "lora/io/unpack.hpp"

namespace lora::data {

/// A file of records, and what is taken of it.
struct DataFile {
  std::string path;
  std::optional<double> weight{};      ///< of its share in a mix, among the weights of all files
  std::string name{};                  ///< in logs and results; empty: from the path
  std::optional<Index> max_samples{};  ///< the first ones

  DataFile() = default;
  /// All of the file, so that a path can stand for one.
  template <std::convertible_to<std::string> P>
  DataFile(P&& file) : path(std::forward<P>(file)) {}

  bool operator==(const DataFile&) const = default;
  /// Whether it is a path and nothing more.
  bool is_path() const { return !weight && name.empty() && !max_samples; }
};

/// A name for each file: its own, else the path's last part without extensions; -2, -3 … where one is there already.
inline std::vector<std::string> names_of(std::span<const DataFile> files) {
  std::vector<std::string> names;
  for (const DataFile& file : files) {
    const std::string first = printable(file.name.empty() ? io::unpacked_name(file.path).stem().native() : file.name);
    std::string name = first;
    for (int i = 2; std::find(names.begin(), names.end(), name) != names.end(); ++i) name = concat(first, "-", i);
    names.push_back(std::move(name));
  }
  return names;
}

}  // namespace lora::data
