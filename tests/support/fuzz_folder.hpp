#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

#include "support/temp_folder.hpp"

namespace lora::test {

/// A folder in memory for a fuzz target whose reader wants files: one of them is the input, the others stay.
class FuzzFolder {
 public:
  const std::filesystem::path& path() const { return folder_.path(); }
  std::filesystem::path operator/(const std::filesystem::path& name) const { return folder_ / name; }

  /// Written as it is, without the syncs and the rename of the library's own files.
  void put(const std::filesystem::path& name, std::string_view content) const {
    std::ofstream(folder_ / name, std::ios::binary | std::ios::trunc)
        .write(content.data(), static_cast<std::streamsize>(content.size()));
  }

 private:
  TempFolder folder_ = TempFolder::in_memory();
};

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace lora::test
