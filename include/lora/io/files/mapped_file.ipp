#pragma once

#include "lora/core/config.hpp"
#include "lora/io/files/mapped_file.hpp"

namespace lora::io::detail {

LORA_INLINE SignalList<Mapping>& mappings() {
  static constinit SignalList<Mapping> all;
  return all;
}

}  // namespace lora::io::detail

namespace lora::io {

LORA_INLINE const char* mapped_at(const void* address) {
  const char* path = nullptr;
  detail::mappings().visit([&](const detail::Mapping& mapping) {
    const auto* place = static_cast<const std::byte*>(address);
    if (!std::less<>()(place, mapping.begin) && std::less<>()(place, mapping.begin + mapping.size)) path = mapping.path;
  });
  return path;
}

LORA_INLINE MappedFile::MappedFile(Path path) : path_(std::move(path)) {
  const int descriptor = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (const int error = errno; descriptor < 0) {
    if (error == ENOENT && is_there(path_)) fail_dangling(path_);
    fail_with(error);
  }
  const auto [error, regular] = map(descriptor);
  ::close(descriptor);
  if (!regular) fail<IoError>("cannot map ", path_.native(), ": not a regular file");
  if (error != 0) fail_with(error);
  try {
    refuse_lfs_pointer(path_, {static_cast<const char*>(data_), size_});
  } catch (...) {
    ::munmap(data_, size_);
    throw;
  }
  if (size_ > 0) entry_ = detail::mappings().add({bytes().data(), size_, path_.c_str()});
}

LORA_INLINE MappedFile::MappedFile(const ScratchFile& file, Path path) : path_(std::move(path)) {
  if (const auto mapped = map(file.descriptor()); mapped.error != 0) fail_with(mapped.error);
  if (size_ > 0) entry_ = detail::mappings().add({bytes().data(), size_, path_.c_str()});
}

LORA_INLINE MappedFile::~MappedFile() {
  entry_.remove();
  if (size_ > 0) ::munmap(data_, size_);
}

LORA_INLINE void MappedFile::release() const {
  read_.store(0, std::memory_order_relaxed);
  if (size_ > 0) ::madvise(data_, size_, MADV_DONTNEED);
}

LORA_INLINE void MappedFile::note_read(std::size_t bytes) const {
  constexpr std::size_t touched = std::size_t{64} << 10;  // a touch maps some sixteen pages
  constexpr std::size_t much = std::size_t{32} << 20;
  const std::size_t read = std::max(bytes, touched);
  if (read_.fetch_add(read, std::memory_order_relaxed) + read >= much) release();
}

LORA_INLINE MappedFile::Attempt MappedFile::map(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return {errno, true};
  if (S_ISDIR(status.st_mode)) return {EISDIR, true};
  if (!S_ISREG(status.st_mode)) return {0, false};
  if (status.st_size == 0) return {0, true};
  void* const data = ::mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_SHARED, descriptor, 0);
  if (data == MAP_FAILED) return {errno, true};
  data_ = data;
  size_ = static_cast<std::size_t>(status.st_size);
  return {0, true};
}

LORA_INLINE void MappedFile::fail_with(int error) const {
  fail<IoError>("cannot open ", path_.native(), ": ", std::generic_category().message(error));
}

}  // namespace lora::io
