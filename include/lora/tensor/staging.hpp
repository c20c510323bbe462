#pragma once

#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "lora/tensor/arena.hpp"
#include "lora/tensor/transfer.hpp"

namespace lora {

/// Page-locked memory of the host through which small things go to a device: their sources may change at once, and the
/// host does not wait. It lies in blocks that are filled one after the other; one that is full is used again once the
/// copies from it are done.
template <AnyDevice D>
class Staging {
 public:
  explicit Staging(D& dev) : dev_(dev) {}
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging() {
    try {
      dev_.synchronize();  // nothing is copied any more
    } catch (...) {        // reported by an earlier wait
    }
    for (const Block& block : blocks_) {
      if (block.copied) dev_.release(*block.copied);
      dev_.free_host(block.memory, block.bytes);
    }
  }

  void copy(void* target, const void* source, std::size_t bytes) {
    if (blocks_.empty() || blocks_[current_].copied || used_ + bytes > blocks_[current_].bytes) open_block(bytes);
    std::byte* const piece = blocks_[current_].memory + used_;
    std::memcpy(piece, source, bytes);
    dev_.copy_from_host(target, piece, bytes);
    used_ += (bytes + Arena::alignment - 1) / Arena::alignment * Arena::alignment;
  }

 private:
  struct Block {
    std::byte* memory;
    std::size_t bytes;
    std::optional<Event> copied{};  // behind all copies from it, once it is full
  };

  /// Makes a block current that has room for so many bytes. Where there is no memory for one, that which is full stays
  /// current, and the next copy asks again.
  void open_block(std::size_t bytes) {
    if (!blocks_.empty() && !blocks_[current_].copied) blocks_[current_].copied = dev_.record(Stream::compute);
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      Block& block = blocks_[i];
      if (block.bytes < bytes || !dev_.is_done(*block.copied)) continue;
      dev_.release(*std::exchange(block.copied, std::nullopt));
      current_ = i;
      used_ = 0;
      return;
    }
    std::size_t size = least;
    while (size < bytes) size *= 2;
    blocks_.reserve(blocks_.size() + 1);
    blocks_.push_back({static_cast<std::byte*>(dev_.allocate_host(size)), size});
    current_ = blocks_.size() - 1;
    used_ = 0;
  }

  static constexpr std::size_t least = std::size_t{1} << 20;

  D& dev_;
  std::vector<Block> blocks_;
  std::size_t current_ = 0, used_ = 0;
};

/// Host values into a contiguous view of as many elements. The source may change or go at once.
template <AnyDevice D, class T>
void copy_staged(D& dev, std::type_identity_t<std::span<const T>> source, View<D, T> target) {
  if constexpr (D::reads_host_memory) {
    copy_from_host<D, T>(dev, source, target);  // which is done when it returns
  } else {
    if (static_cast<Index>(source.size()) != target.size() || !target.contiguous())
      fail<ShapeError>("[copy_staged] ", source.size(), " values for a view of ", to_string(target.shape()));
    if (!source.empty()) dev.template state<Staging<D>>().copy(target.data(), source.data(), source.size_bytes());
  }
}

}  // namespace lora
