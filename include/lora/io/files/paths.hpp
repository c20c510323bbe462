#pragma once

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/core/scalar.hpp"
#include "lora/io/files/read_file.hpp"

namespace lora::io {

/// The type of what has this name, without following symbolic links; `not_found` if nothing has.
/// Throws   IoError if it can't be determined
std::filesystem::file_type type_of(const Path& path);

inline bool is_folder(const Path& path) { return type_of(path) == std::filesystem::file_type::directory; }
inline bool is_file(const Path& path) { return type_of(path) == std::filesystem::file_type::regular; }

std::vector<Path> entries_of(const Path& folder);

/// N of a name that is PREFIX and N: a user's copy named checkpoint-07 is not step 7's.
std::optional<Index> number_behind(std::string_view prefix, const Path& path);

/// Of a run's checkpoints that hold a file, the newest, to name it in errors. `folder`: the run's, or that of its
/// checkpoints.
std::optional<Path> newest_checkpoint(const Path& folder, std::string_view file);

inline bool is_same(const struct stat& a, const struct stat& b) { return a.st_dev == b.st_dev && a.st_ino == b.st_ino; }

/// The part of an input (a file, or a folder of files) that lies at or in `place`: the input, or a link in it.
std::optional<Path> input_within(const Path& input, const Path& place);

}  // namespace lora::io

#ifndef LORA_COMPILED
#  include "lora/io/files/paths.ipp"
#endif
