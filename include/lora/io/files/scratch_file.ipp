#pragma once

#include <cstdint>

#include "lora/core/config.hpp"
#include "lora/io/files/scratch_file.hpp"

namespace lora::io {

LORA_INLINE Path scratch_folder() {
  const char* chosen = std::getenv("TMPDIR");
  return chosen != nullptr && *chosen != '\0' ? chosen : "/var/tmp";
}

LORA_INLINE int detail::create_and_unlink(const Path& folder) {
  std::string name = (folder / "lora-scratch-XXXXXX").native();
  const int descriptor = ::mkostemp(name.data(), O_CLOEXEC);
  if (descriptor >= 0) ::unlink(name.c_str());
  return descriptor;
}

LORA_INLINE ScratchFile::ScratchFile(std::string holds) : holds_(std::move(holds)), folder_(scratch_folder()) {
  descriptor_ = static_cast<int>(detail::perform({FileOperation::Kind::create, folder_, Path()}, [&](std::size_t) {
    const int nameless = ::open(folder_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (nameless >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return nameless;
    return detail::create_and_unlink(folder_);
  }));
  if (descriptor_ < 0) fail_here(errno);
}

LORA_INLINE void ScratchFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::int64_t written =
        detail::perform({FileOperation::Kind::write, folder_, Path(), bytes.size()},
                        [&](std::size_t count) { return ::write(descriptor_, bytes.data(), count); });
    if (written < 0) fail_here(errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

LORA_INLINE void ScratchFile::fail_here(int error) const {
  fail<IoError>("cannot write ", holds_, " to a temporary file in ", folder_.native(), ": ",
                std::generic_category().message(error), "; TMPDIR names another folder");
}

}  // namespace lora::io
