#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace lora::test {

/// An empty folder of its own for one test, removed with all it holds when the test ends.
class TempFolder {
 public:
  TempFolder() : TempFolder(std::filesystem::temp_directory_path()) {}

  /// In memory where there is such a place, for tests that sync thousands of files.
  static TempFolder in_memory() {
    const std::filesystem::path memory = "/dev/shm";
    return TempFolder(::access(memory.c_str(), W_OK) == 0 ? memory : std::filesystem::temp_directory_path());
  }

  explicit TempFolder(const std::filesystem::path& parent) {
    std::string name = (parent / "lora-test-XXXXXX").native();
    if (!::mkdtemp(name.data())) throw std::system_error(errno, std::generic_category(), name);
    path_ = name;
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::filesystem::path& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace lora::test
