#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "lora/core/error.hpp"
#include "lora/core/hash.hpp"
#include "lora/core/signal_list.hpp"
#include "lora/io/files/path.hpp"

namespace lora::io {

/// What a temporary name stands for: a file being written, a folder being written, one moved away for a new one, one
/// being removed.
enum class Temporary { partial, writing, replaced, removing };

namespace detail {

constexpr std::size_t random_digits = 16, sealed_digits = random_digits + 8;

}  // namespace detail

/// A file's name as part of a temporary name: the whole name or, since names are limited to 255 bytes, the start of a
/// long one and a hash of all of it.
std::string held_name(const std::string& name);

/// A unique, unpredictable name next to `path`: NAME, 16 random digits, 8 check digits, .lora-KIND.
Path temporary_name(const Path& path, Temporary kind);

/// NAME of a temporary name of this kind, in the form of held_name; nothing if it is not such a name.
std::optional<std::string> name_of_temporary(const Path& path, Temporary kind);

namespace detail {

struct UnfinishedName {
  char path[PATH_MAX];
};

}  // namespace detail

/// Registers a temporary file, or folder of files, for `remove_unfinished` until destroyed.
class Unfinished {
 public:
  Unfinished() = default;
  explicit Unfinished(const Path& path);
  void finish() { entry_.remove(); }

 private:
  SignalList<detail::UnfinishedName>::Entry entry_;
};

/// Removes every registered temporary file and folder. For the handler of a fatal signal.
void remove_unfinished();

}  // namespace lora::io

#ifndef LORA_COMPILED
#  include "lora/io/files/temporary.ipp"
#endif
