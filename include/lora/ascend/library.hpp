#pragma once

#include <dlfcn.h>

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
    const char* folder = std::getenv("LORA_ASCEND_LIBRARIES");
    named_ = folder != nullptr && *folder != '\0';
    for (const std::string_view name : names) {
      const std::string path = named_ ? concat(folder, "/", name) : std::string(name);
      // Global, since the vendor's libraries look for one another's symbols.
      if (void* const handle = dlopen(path.c_str(), RTLD_LAZY | RTLD_GLOBAL)) {
        handles_.push_back(handle);
        names_ += concat(names_.empty() ? "" : ", ", path);
      } else {
        const char* const error = dlerror();
        const std::string text = error != nullptr ? error : concat(path, " can't be opened");
        const bool absent = text.starts_with(path + ": cannot open shared object file: No such file");
        if (reason_.empty() || (!absent && !broken_)) reason_ = text;
        broken_ = broken_ || !absent;
      }
    }
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
  std::vector<void*> handles_;
  std::string names_;
  std::string reason_;
  bool named_ = false, broken_ = false;
};

}  // namespace lora::ascend
