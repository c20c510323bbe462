#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "lora/ascend/runtime/runtime.hpp"
#include "lora/core/assert.hpp"

namespace lora::ascend {

/// Device memory in pieces, out of larger ones from the runtime, which takes milliseconds for each and gives none back
/// in the order of a stream. A piece that is free may be given away again at once: all that uses the pool's memory does
/// so in one stream, or after an event in it.
class MemoryPool {
 public:
  /// Pieces begin on so many bytes; behind what was asked for lie `tail` more, which kernels may touch.
  static constexpr std::size_t unit = 512, tail = 32;

  explicit MemoryPool(const Runtime& runtime) : runtime_(runtime) {}
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;
  ~MemoryPool() {
    for (const auto& [begin, size] : segments_) (void)runtime_.aclrtFree(reinterpret_cast<void*>(begin));
  }

  /// Null where there is none; `error` then says what the runtime said.
  void* allocate(std::size_t bytes, aclError& error) {
    const std::size_t size = rounded(bytes + tail, unit);
    auto found = free_.lower_bound({size, 0});
    if (found == free_.end()) {
      error = add_segment(size);
      if (error != 0) return nullptr;
      found = free_.lower_bound({size, 0});
    }
    const auto [whole, begin] = *found;
    free_.erase(found);
    Piece& piece = pieces_.at(begin);
    piece.free = false;
    if (whole > size) {
      piece.size = size;
      pieces_.emplace(begin + size, Piece{whole - size, true, false});
      free_.emplace(whole - size, begin + size);
    }
    used_ += size;
    peak_ = std::max(peak_, used_);
    return reinterpret_cast<void*>(begin);
  }

  void free(void* memory) noexcept {
    auto piece = pieces_.find(reinterpret_cast<std::uintptr_t>(memory));
    LORA_ASSERT(piece != pieces_.end() && !piece->second.free);
    if (piece == pieces_.end()) return;
    used_ -= piece->second.size;
    piece->second.free = true;
    // Free neighbors of one segment become one piece.
    if (const auto next = std::next(piece); next != pieces_.end() && next->second.free && !next->second.first) {
      free_.erase({next->second.size, next->first});
      piece->second.size += next->second.size;
      pieces_.erase(next);
    }
    if (!piece->second.first) {
      if (const auto before = std::prev(piece); before->second.free) {
        free_.erase({before->second.size, before->first});
        before->second.size += piece->second.size;
        pieces_.erase(piece);
        piece = before;
      }
    }
    free_.emplace(piece->second.size, piece->first);
  }

  /// Gives whole segments that are free back to the runtime. To be called when the device has nothing queued.
  void release() noexcept {
    for (auto segment = segments_.begin(); segment != segments_.end();) {
      const auto [begin, size] = *segment;
      const auto piece = pieces_.find(begin);
      if (!piece->second.free || piece->second.size != size) {
        ++segment;
        continue;
      }
      free_.erase({size, begin});
      pieces_.erase(piece);
      segment = segments_.erase(segment);
      (void)runtime_.aclrtFree(reinterpret_cast<void*>(begin));
    }
  }

  std::size_t used() const { return used_; }
  std::size_t peak() const { return peak_; }
  /// What it holds and nobody uses.
  std::size_t cached() const {
    std::size_t bytes = 0;
    for (const auto& [size, begin] : free_) bytes += size;
    return bytes;
  }

 private:
  struct Piece {
    std::size_t size;
    bool free;
    bool first;  ///< of a segment
  };

  static constexpr std::size_t rounded(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

  /// Small pieces share a segment; a large one, such as a weight, has its own.
  aclError add_segment(std::size_t least) {
    constexpr std::size_t page = std::size_t{2} << 20, shared = std::size_t{16} << 20;
    std::size_t size = least <= page ? shared : rounded(least, page);
    void* memory = nullptr;
    aclError error = runtime_.aclrtMallocAlign32(&memory, size, ACL_MEM_MALLOC_HUGE_FIRST);
    if (error != 0 && size > rounded(least, page)) {  // what is left may be less than pieces would share
      size = rounded(least, page);
      error = runtime_.aclrtMallocAlign32(&memory, size, ACL_MEM_MALLOC_HUGE_FIRST);
    }
    if (error != 0) return error;
    const auto begin = reinterpret_cast<std::uintptr_t>(memory);
    segments_.emplace(begin, size);
    pieces_.emplace(begin, Piece{size, true, true});
    free_.emplace(size, begin);
    return 0;
  }

  const Runtime& runtime_;
  std::map<std::uintptr_t, std::size_t> segments_;
  std::map<std::uintptr_t, Piece> pieces_;
  std::set<std::pair<std::size_t, std::uintptr_t>> free_;
  std::size_t used_ = 0, peak_ = 0;
};

}  // namespace lora::ascend
