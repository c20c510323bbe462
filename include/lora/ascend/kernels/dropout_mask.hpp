#pragma once

#include <omp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>

#include "lora/ascend/runtime/device.hpp"
#include "lora/core/random.hpp"
#include "lora/kernel/elementwise.hpp"
#include "lora/tensor/page_locked.hpp"

// Dropout's mask as the operator DropoutDoMask takes it: a bit an element, 1 where it is kept, the first one's lowest,
// in whole units of 128 bits. Its bits are the contract's, which no operator draws, so that the host does.

namespace lora::ascend {

constexpr Index dropout_mask_bytes(Index elements) { return (elements + 127) / 128 * 16; }

namespace detail {

/// Bits of the columns [8 · first, 8 · (first + count)) of the row at (place, position): 1 where a column's word is
/// `limit` or more.
inline void draw_bytes(std::uint32_t place, std::uint32_t position, std::uint64_t key, std::uint32_t limit, Index first,
                       Index count, std::uint8_t* bytes) {
  constexpr Index piece = 256;
  std::array<std::uint32_t, static_cast<std::size_t>(2 * piece)> halves;  // a counter's four bits each
  for (Index at = 0; at < count; at += piece) {
    const Index here = std::min(piece, count - at), block = 2 * (first + at);
    LORA_SIMD
    for (Index i = 0; i < 2 * here; ++i) {
      auto c0 = static_cast<std::uint32_t>(block + i);
      std::uint32_t c1 = position, c2 = place, c3 = 0;
      philox(c0, c1, c2, c3, key);
      const std::uint32_t b0 = c0 >= limit, b1 = c1 >= limit, b2 = c2 >= limit, b3 = c3 >= limit;
      halves[static_cast<std::size_t>(i)] = b0 | b1 << 1 | b2 << 2 | b3 << 3;
    }
    LORA_SIMD
    for (Index i = 0; i < here; ++i) {
      const auto low = static_cast<std::size_t>(2 * i);
      bytes[at + i] = static_cast<std::uint8_t>(halves[low] | halves[low + 1] << 4);
    }
  }
}

/// The same for `cols` columns that begin at bit `begin` of `bits`, within a byte, where other bits are kept.
inline void draw_within_bytes(std::uint32_t place, std::uint32_t position, std::uint64_t key, std::uint32_t limit,
                              Index cols, Index begin, std::uint8_t* bits) {
  std::array<std::uint8_t, 64> drawn;
  for (Index at = 0; at < cols; at += 8 * std::ssize(drawn)) {
    const Index left = std::min<Index>(8 * std::ssize(drawn), cols - at), count = (left + 7) / 8;
    draw_bytes(place, position, key, limit, at / 8, count, drawn.data());
    if (left % 8 > 0) drawn[static_cast<std::size_t>(count - 1)] &= static_cast<std::uint8_t>((1 << left % 8) - 1);
    for (Index i = 0; i < count; ++i) {
      const Index bit = begin + at + 8 * i;
      const int both = drawn[static_cast<std::size_t>(i)] << bit % 8;
      bits[bit / 8] |= static_cast<std::uint8_t>(both);
      if (both > 0xFF) bits[bit / 8 + 1] |= static_cast<std::uint8_t>(both >> 8);
    }
  }
}

}  // namespace detail

/// `threads` 0: as many as OpenMP would start. The bits do not depend on it.
inline void draw_dropout_mask(const kernel::Dropout& rule, std::span<const std::int32_t> sequence_index,
                              std::span<const std::int32_t> positions, Index cols, int threads,
                              std::span<std::uint8_t> bits) {
  const double limit = std::ceil(rule.p * 0x1p32);  // word ≥ p · 2³² exactly where word ≥ ⌈p · 2³²⌉
  if (limit > 0xFFFFFFFFp0) return (void)std::ranges::fill(bits, std::uint8_t{0});
  const auto least = static_cast<std::uint32_t>(limit);
  const Index rows = std::ssize(positions), groups = (rows + 7) / 8;  // of rows, which begin on a byte
  const bool whole_bytes = cols % 8 == 0;
  std::ranges::fill(bits.subspan(whole_bytes ? static_cast<std::size_t>(rows * cols / 8) : 0), std::uint8_t{0});
  const auto draw = [=](Index row) {
    const auto at = static_cast<std::size_t>(row);
    const auto place = static_cast<std::uint32_t>(sequence_index[at]),
               position = static_cast<std::uint32_t>(positions[at]);
    if (whole_bytes)
      detail::draw_bytes(place, position, rule.key, least, 0, cols / 8, bits.data() + row * cols / 8);
    else
      detail::draw_within_bytes(place, position, rule.key, least, cols, row * cols, bits.data());
  };
  const int team = threads > 0 ? threads : omp_get_max_threads();
#pragma omp parallel for schedule(static) num_threads(team) if (rows * cols >= 65536)
  for (Index group = 0; group < groups; ++group)
    for (Index row = 8 * group; row < std::min(rows, 8 * group + 8); ++row) draw(row);
}

/// Draws masks into page-locked memory, from which they are copied while the host goes on. They lie one behind the
/// other in a ring with room for eight of the largest, two layers' of a model: where the host is further ahead, it
/// waits.
class DropoutMasks {
 public:
  explicit DropoutMasks(Device& dev) : dev_(dev) {}
  DropoutMasks(const DropoutMasks&) = delete;
  DropoutMasks& operator=(const DropoutMasks&) = delete;
  ~DropoutMasks() {
    try {
      dev_.synchronize();  // nothing is copied any more
    } catch (...) {        // whoever waited before has heard of it
    }
    while (!copies_.empty()) retire();
  }

  void draw(const kernel::Dropout& rule, std::span<const std::int32_t> sequence_index,
            std::span<const std::int32_t> positions, Index cols, View<Device, std::uint8_t> mask) {
    const std::span<std::uint8_t> bits = room(static_cast<std::size_t>(mask.size()));
    draw_dropout_mask(rule, sequence_index, positions, cols, dev_.settings().threads, bits);
    dev_.copy_unseen(mask.data(), bits.data(), bits.size());
    copies_.push_back({next_, next_ + bits.size(), dev_.record(Stream::compute)});
    next_ += bits.size();
  }

 private:
  struct Copy {
    std::size_t begin, end;  // in the ring
    Event done;
  };

  /// So many bytes from `next_` on, from which nothing is copied any more.
  std::span<std::uint8_t> room(std::size_t bytes) {
    while (!copies_.empty() && dev_.is_done(copies_.front().done)) retire();
    if (8 * bytes > ring_.bytes()) {
      wait_while([](const Copy&) { return true; });
      ring_ = PageLocked<Device>(dev_, std::max(least, 8 * bytes));
    }
    if (next_ + bytes > ring_.bytes()) next_ = 0;
    wait_while([&](const Copy& copy) { return copy.begin < next_ + bytes && next_ < copy.end; });
    return {reinterpret_cast<std::uint8_t*>(ring_.data()) + next_, bytes};
  }
  template <class Use>
  void wait_while(const Use& uses) {
    while (std::ranges::any_of(copies_, uses)) {
      dev_.wait(copies_.front().done);
      retire();
    }
  }
  void retire() {
    dev_.release(copies_.front().done);
    copies_.pop_front();
  }

  static constexpr std::size_t least = std::size_t{8} << 20;

  Device& dev_;
  PageLocked<Device> ring_;
  std::size_t next_ = 0;
  std::deque<Copy> copies_;  // the oldest first
};

}  // namespace lora::ascend
