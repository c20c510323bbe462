#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>

#include "lora/tensor/device.hpp"

namespace lora::ascend {

/// Copies between a device and memory of the host that is not page-locked, of which the runtime promises nothing while
/// streams run: by way of two chunks that are, one of which is copied while the host fills or reads the other.
template <class D>
class Relay {
 public:
  static constexpr std::size_t chunk_bytes = std::size_t{4} << 20;

  /// The source may change or go at once. copy(target, source, bytes) queues one from page-locked memory.
  template <class Copy>
  void copy_from_host(D& dev, std::byte* target, const std::byte* source, std::size_t bytes, Stream stream,
                      const Copy& copy) {
    for (std::size_t at = 0; at < bytes; at += chunk_bytes) {
      const std::size_t size = std::min(chunk_bytes, bytes - at);
      Chunk& chunk = next(dev);
      std::memcpy(chunk.memory, source + at, size);
      copy(target + at, chunk.memory, size);
      chunk.used = dev.record(stream);
    }
  }

  /// Is done when it returns.
  void copy_to_host(D& dev, std::byte* target, const std::byte* source, std::size_t bytes) {
    Chunk* before = nullptr;
    for (std::size_t at = 0; at < bytes; at += chunk_bytes) {
      Chunk& chunk = next(dev);
      dev.start_copy_to_host(chunk.memory, source + at, std::min(chunk_bytes, bytes - at), Stream::compute);
      chunk.used = dev.record(Stream::compute);
      if (before != nullptr) read(dev, *before, target + at - chunk_bytes, chunk_bytes);
      before = &chunk;
    }
    if (before == nullptr) return;
    const std::size_t last = (bytes - 1) / chunk_bytes * chunk_bytes;
    read(dev, *before, target + last, bytes - last);
  }

  /// To be called when the device has nothing queued any more.
  void release(D& dev) noexcept {
    for (Chunk& chunk : chunks_) {
      if (chunk.used) dev.release(*std::exchange(chunk.used, std::nullopt));
      if (chunk.memory != nullptr) dev.free_host(std::exchange(chunk.memory, nullptr), chunk_bytes);
    }
  }

 private:
  struct Chunk {
    std::byte* memory = nullptr;
    std::optional<Event> used{};  ///< behind the last copy from it or to it
  };

  /// One that is used no more.
  Chunk& next(D& dev) {
    Chunk& chunk = chunks_[turn_ ^= 1];
    if (chunk.memory == nullptr) chunk.memory = static_cast<std::byte*>(dev.allocate_host(chunk_bytes));
    if (chunk.used && dev.is_done(*chunk.used)) dev.release(*std::exchange(chunk.used, std::nullopt));
    if (chunk.used) finish(dev, chunk);
    return chunk;
  }

  static void read(D& dev, Chunk& chunk, std::byte* target, std::size_t bytes) {
    finish(dev, chunk);
    std::memcpy(target, chunk.memory, bytes);
  }

  static void finish(D& dev, Chunk& chunk) {
    dev.wait(*chunk.used);
    dev.release(*std::exchange(chunk.used, std::nullopt));
  }

  std::array<Chunk, 2> chunks_{};
  std::size_t turn_ = 0;
};

}  // namespace lora::ascend
