#pragma once

#include <dlfcn.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lora/core/error.hpp"

namespace lora::ascend {

/// Libraries of the vendor's, opened while the program runs, so that it starts on machines that have none. They stay
/// open to the end: their own threads and destructors don't outlive being closed.
class Libraries {
 public:
  /// Opens each of these that is there, in the folder that LORA_ASCEND_LIBRARIES names or where the system looks.
  explicit Libraries(std::span<const std::string_view> names) {
    for (const std::string_view name : names) open(name);
  }

  /// One more, in which symbols are looked for last.
  void open(std::string_view name) {
    const char* folder = std::getenv("LORA_ASCEND_LIBRARIES");
    named_ = folder != nullptr && *folder != '\0';
    const std::string path = named_ ? concat(folder, "/", name) : std::string(name);
    if (const std::string other = no_file(path, named_); !other.empty())
      return note_reason(other + " is no file", false);
    // Local: they name what they need, and symbols that several of them have are to be each one's own.
    if (void* const handle = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL)) {
      handles_.push_back(handle);
      names_ += concat(names_.empty() ? "" : ", ", path);
      return;
    }
    const char* const error = dlerror();
    const std::string text = error != nullptr ? error : concat(path, " can't be opened");
    note_reason(text, text.starts_with(path + ": cannot open shared object file: No such file"));
  }

  bool any() const { return !handles_.empty(); }
  /// Of those that are open, joined by commas.
  const std::string& names() const { return names_; }
  /// Why the first that could not be opened could not; rather one that is there than one that is not.
  const std::string& reason() const { return reason_; }
  /// Whether one is there and could not be opened, for what is in it or for another one that it needs.
  bool broken() const { return broken_; }
  /// Whether whoever started the program has them, or says so.
  bool expected() const { return named_ || broken_ || any(); }

  /// Null where none of them has it. `F`: its type, which nothing checks.
  template <class F>
  F* find(const std::string& name) const {
    for (void* const handle : handles_)
      if (void* const address = dlsym(handle, name.c_str())) return reinterpret_cast<F*>(address);
    return nullptr;
  }

 private:
  /// What would be opened in the library's place and is a pipe or a folder, say: to open it could wait for ever.
  static std::string no_file(const std::string& name, bool is_path) {
    const auto is_other = [](const std::string& path, bool& there) {
      struct stat status {};
      there = ::stat(path.c_str(), &status) == 0;
      return there && !S_ISREG(status.st_mode);
    };
    bool there = false;
    if (is_path) return is_other(name, there) ? name : std::string();
    const char* const folders = std::getenv("LD_LIBRARY_PATH");
    for (std::string_view rest = folders != nullptr ? folders : ""; !rest.empty();) {
      const auto end = std::min(rest.find_first_of(":;"), rest.size());
      const std::string path = concat(end == 0 ? std::string_view(".") : rest.substr(0, end), "/", name);
      if (is_other(path, there)) return path;
      if (there) return {};
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return {};
  }

  void note_reason(const std::string& text, bool absent) {
    if (reason_.empty() || (!absent && !broken_)) reason_ = text;
    broken_ = broken_ || !absent;
  }

  std::vector<void*> handles_;
  std::string names_;
  std::string reason_;
  bool named_ = false, broken_ = false;
};

}  // namespace lora::ascend
