#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <utility>

#include "lora/core/assert.hpp"
#include "lora/core/config.hpp"
#include "lora/core/error.hpp"
#include "lora/core/scalar.hpp"
#include "lora/tensor/view.hpp"

namespace lora {

/// A stack with two ends over one region of device memory. What a forward pass saves for its backward pass, or holds
/// where another pass will save as much, grows from the low end and is released in reverse; scratch of a scope grows
/// from the high end. Every piece begins on 64 bytes, since the order of vectorized sums, and so their bits, depends on
/// alignment.
///
/// Debug builds put a guard band behind every piece of host-readable memory and check it when the piece is released.
class Arena {
 public:
  static constexpr std::size_t alignment = 64;

  /// Offsets.
  struct Range {
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  /// How much of the arena a piece takes: whole units of `alignment`, with `tail` bytes behind it that kernels may
  /// touch and nobody else has, and a guard band.
  struct Padding {
    std::size_t tail = 0;
    std::size_t band = 0;

    constexpr std::size_t operator()(std::size_t bytes) const {
      return (std::max<std::size_t>(bytes, 1) + tail + alignment - 1) / alignment * alignment + band;
    }
  };

  /// Gives memory to the bytes [begin, end) of the arena's address space, which have none yet. Throws DeviceError.
  using Grow = std::function<void(std::size_t begin, std::size_t end)>;

  /// Address space of the device, which outlives the arena. `readable`: host code may look at it. Where the space has
  /// no memory of itself, `grow` gives it some, in pieces that begin and end on multiples of `unit` bytes, each once.
  /// `tail`: see Padding.
  Arena(void* memory, std::size_t bytes, bool readable, Grow grow = {}, std::size_t unit = std::size_t{2} << 20,
        std::size_t tail = 0)
      : base_(static_cast<std::byte*>(memory)),
        capacity_(bytes / alignment * alignment),
        high_(capacity_),
        guarded_(LORA_DEBUG && readable),
        padding_{tail, guarded_ ? band : 0},
        grow_(std::move(grow)),
        unit_(unit),
        ungrown_(grow_ ? Range{0, capacity_} : Range{capacity_, 0}) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// The position of the low end, for `release`.
  std::size_t mark() const { return low_; }

  /// Releases everything saved after `mark`.
  void release(std::size_t mark) {
    LORA_ASSERT(mark <= low_);  // called by scopes alone, in reverse order, and from their destructors
    check_guards(mark, low_);
    low_ = mark;
    lowest_ = std::min(lowest_, low_);
  }

  void* save(std::size_t bytes) {
    const std::size_t size = padding_(bytes);
    require(size);
    if (low_ + size > ungrown_.begin) grow_low(low_ + size);
    std::byte* piece = base_ + low_;
    low_ += size;
    note_peak();
    put_guard(piece, size);
    return piece;
  }

  /// Releases scratch at the end of the scope; scopes nest.
  class Scope {
   public:
    explicit Scope(Arena& arena) : arena_(arena), mark_(arena.high_) {}
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() {
      arena_.check_guards(arena_.high_, mark_);
      arena_.high_ = mark_;
      arena_.highest_ = std::max(arena_.highest_, mark_);
    }

   private:
    Arena& arena_;
    std::size_t mark_;
  };

  /// Releases what was saved during the scope, unless it is kept.
  class SavedScope {
   public:
    explicit SavedScope(Arena& arena, bool releases = true) : arena_(arena), mark_(arena.low_), releases_(releases) {}
    SavedScope(const SavedScope&) = delete;
    SavedScope& operator=(const SavedScope&) = delete;
    ~SavedScope() {
      if (releases_) arena_.release(mark_);
    }

   private:
    Arena& arena_;
    std::size_t mark_;
    bool releases_;
  };

  void* scratch(std::size_t bytes) {
    const std::size_t size = padding_(bytes);
    require(size);
    if (high_ - size < ungrown_.end) grow_high(high_ - size);
    high_ -= size;
    note_peak();
    put_guard(base_ + high_, size);
    return base_ + high_;
  }

  std::size_t capacity() const { return capacity_; }
  const Padding& padding() const { return padding_; }
  std::size_t saved_bytes() const { return low_; }
  std::size_t scratch_bytes() const { return capacity_ - high_; }
  /// Peak bytes of each end; together the memory that the arena has touched, except for rounding to pages.
  std::size_t peak_saved() const { return peak_low_; }
  std::size_t peak_scratch() const { return peak_high_; }
  std::size_t peak() const { return peak_low_ + peak_high_; }

  /// The free memory between both ends.
  Range free_range() const { return {low_, high_}; }
  /// What has no memory yet, where memory is given.
  Range ungrown_range() const { return ungrown_; }
  /// The most that was free at once since the last call, for a device that checks what kernels read: what has been
  /// taken from there holds nothing yet.
  Range take_widest_free_range() { return {std::exchange(lowest_, low_), std::exchange(highest_, high_)}; }

 private:
  static constexpr unsigned char pattern = 0xA5;
  // In debug builds a piece is [payload | band of 56 bytes | size of the piece, 8 bytes], so that bands can be walked.
  static constexpr std::size_t band = alignment;

  void require(std::size_t size) const {
    if (size > high_ - low_)
      fail<DeviceError>("[arena] ", size, " bytes do not fit: ", high_ - low_, " of ", capacity_,
                        " are free; use smaller micro-batches or gradient checkpointing");
  }
  // Memory up to `end` at least from the low end, or from `begin` on at the high end; what the other end has stays.
  void grow_low(std::size_t end) {
    const std::size_t to = std::min((end + unit_ - 1) / unit_ * unit_, ungrown_.end);
    if (ungrown_.begin < to) grow_(ungrown_.begin, to);
    ungrown_.begin = std::max(ungrown_.begin, to);
  }
  void grow_high(std::size_t begin) {
    const std::size_t from = std::max(begin / unit_ * unit_, ungrown_.begin);
    if (from < ungrown_.end) grow_(from, ungrown_.end);
    ungrown_.end = std::min(ungrown_.end, from);
  }
  void note_peak() {
    peak_low_ = std::max(peak_low_, low_);
    peak_high_ = std::max(peak_high_, capacity_ - high_);
  }
  void put_guard(std::byte* piece, std::size_t size) const {
    if (!guarded_) return;
    std::memset(piece, 0xFF, size - band);  // NaN in every float type: reading before writing is noticed
    std::memset(piece + size - band, pattern, band - sizeof size);
    std::memcpy(piece + size - sizeof size, &size, sizeof size);
  }
  void check_guards(std::size_t begin, std::size_t end) const {
    if (!guarded_) return;
    while (end > begin) {
      std::size_t size = 0;
      std::memcpy(&size, base_ + end - sizeof size, sizeof size);
      bool whole = size >= band && size <= end - begin;
      for (std::size_t i = sizeof size + 1; whole && i <= band; ++i) whole = base_[end - i] == std::byte{pattern};
      LORA_ASSERT(whole && "a kernel wrote past its scratch or saved memory");
      end -= size;
    }
  }

  std::byte* base_;
  std::size_t capacity_;
  std::size_t low_ = 0;
  std::size_t high_;
  std::size_t peak_low_ = 0;
  std::size_t peak_high_ = 0;
  std::size_t lowest_ = 0;
  std::size_t highest_ = high_;
  bool guarded_;
  Padding padding_;
  Grow grow_;
  std::size_t unit_;
  Range ungrown_;
};

/// (rows, cols) of T at the arena's low end: kept until released.
template <class T, class D>
View<D, T> save(D& dev, Index rows, Index cols) {
  return {static_cast<T*>(dev.arena().save(static_cast<std::size_t>(rows * cols) * sizeof(T))), rows, cols};
}

/// (rows, cols) of T at the arena's high end: released with the enclosing Arena::Scope.
template <class T, class D>
View<D, T> scratch(D& dev, Index rows, Index cols) {
  return {static_cast<T*>(dev.arena().scratch(static_cast<std::size_t>(rows * cols) * sizeof(T))), rows, cols};
}

}  // namespace lora
