#pragma once

#include "lora/core/config.hpp"
#include "lora/data/records/data_file.hpp"

namespace lora::data {

LORA_INLINE std::vector<std::string> names_of(std::span<const DataFile> files) {
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
