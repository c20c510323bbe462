#pragma once

#include <filesystem>
#include <string_view>

#include "lora/core/error.hpp"
#include "lora/io/files/path.hpp"

namespace lora::io {

/// Rejects a Git LFS pointer: the few lines of text in place of a large file that was not fetched.
/// Throws   FormatError
/// Source   git-lfs, docs/spec.md
inline void refuse_lfs_pointer(const Path& path, std::string_view content) {
  constexpr std::size_t largest = 1023;
  if (content.size() > largest || !content.starts_with("version https://git-lfs.github.com/spec/")) return;
  fail<FormatError>(path.native(), ": this is a Git LFS pointer, not the file itself; to fetch the file: ",
                    "'git lfs pull' in its folder, or download it again");
}

}  // namespace lora::io
