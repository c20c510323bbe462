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
    for (const std::string_view name : names) {
      const std::string path = folder != nullptr && *folder != '\0' ? concat(folder, "/", name) : std::string(name);
      // Global, since the vendor's libraries look for one another's symbols.
      if (void* const handle = dlopen(path.c_str(), RTLD_LAZY | RTLD_GLOBAL)) {
        handles_.push_back(handle);
        names_ += concat(names_.empty() ? "" : ", ", path);
      } else if (reason_.empty()) {
        const char* error = dlerror();
        reason_ = error != nullptr ? error : concat(path, " can't be opened");
      }
    }
  }

  bool any() const { return !handles_.empty(); }
  /// Of those that are open, joined by commas.
  const std::string& names() const { return names_; }
  /// Why the first that could not be opened could not.
  const std::string& reason() const { return reason_; }

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
};

}  // namespace lora::ascend
