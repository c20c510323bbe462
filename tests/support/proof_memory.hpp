#pragma once

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/cpu/runtime/device.hpp"
#include "support/proof_touch.hpp"

namespace lora::proof {

/// What a backend may count on: that operands begin on such a boundary, and that a kernel may write whole blocks.
constexpr std::size_t block_bytes = view_alignment;

/// A task's number in each stream; 0 is before all.
using Times = std::array<std::uint64_t, 3>;

/// How a kernel uses an operand. Of a part it is known later which rows it uses: those are operands of their own.
enum class Use { read, write, update, part };

/// Rows of bytes at addresses as views carry them.
struct Operand {
  std::string_view name;
  Use use = Use::read;
  const std::byte* data = nullptr;
  std::size_t rows = 0, row_bytes = 0, stride = 0;

  bool empty() const { return data == nullptr || rows == 0 || row_bytes == 0; }
  bool reads() const { return use == Use::read || use == Use::update; }
  bool writes() const { return use == Use::write || use == Use::update; }
  std::size_t span() const { return (rows - 1) * stride + row_bytes; }
};

/// The memory of one proof device: an arena, and behind it allocations whose addresses are never used again. Each byte
/// has an address that host code sees and can't touch, a place where it really is, and a note whether it was written.
///
/// What is allocated is the host thread's to ask; bytes and notes belong to the worker.
class Memory {
 public:
  explicit Memory(std::size_t arena_bytes)
      : arena_bytes_(arena_bytes),
        seen_(total_bytes, this, &Memory::describe_touched),
        real_(total_bytes, 0),
        written_(total_bytes, 0),
        next_(arena_bytes + block_bytes) {
    if (real_.bytes() != total_bytes || written_.bytes() != total_bytes)
      fail<DeviceError>("[proof] no address space for ", total_bytes, " bytes");
  }

  // On the host thread.

  std::byte* arena_begin() const { return seen_.begin(); }

  void* allocate(std::size_t bytes) {
    next_ = (next_ + Arena::alignment - 1) / Arena::alignment * Arena::alignment;
    // Behind each allocation lie at least as many bytes that are nobody's.
    if (next_ + bytes + Arena::alignment > total_bytes) fail<DeviceError>("[proof] out of memory: ", bytes, " bytes");
    const std::size_t offset = next_;
    next_ += bytes + Arena::alignment;
    allocations_[offset] = {.number = allocations_.size() + 1, .bytes = bytes, .made = Place::here()};
    return seen_.begin() + offset;
  }

  /// Empty, or why this can't be freed.
  std::string free(const void* memory, std::size_t bytes) {
    const auto found = seen_.holds(memory) ? allocations_.find(offset_of(memory)) : allocations_.end();
    if (found == allocations_.end()) return "free of memory that no allocation begins at";
    auto& [offset, allocation] = *found;
    if (!allocation.live) return concat("free of ", described(offset), " for the second time");
    allocation.live = false;
    if (allocation.bytes != bytes) return concat("free of ", bytes, " bytes: ", described(offset));
    return {};
  }

  /// Empty, or why a kernel must not be given this operand.
  std::string refusal(const Operand& operand) const {
    if (operand.empty()) return {};
    if (!seen_.holds(operand.data))
      return Untouchable::any_holds(operand.data) ? "is memory of another device" : "is memory of the host";
    const std::size_t offset = offset_of(operand.data), end = offset + operand.span();
    if (offset < arena_bytes_) {
      if (end <= arena_free_.begin || (offset >= arena_free_.end && end <= arena_bytes_)) return {};
      return concat("reaches into the arena's free memory: it is bytes ", offset, " to ", end, ", but ",
                    arena_free_.begin, " to ", arena_free_.end, " are free");
    }
    const auto* const found = allocation_at(offset);
    if (found == nullptr) return "is memory of no allocation";
    if (!found->second.live) return concat("is freed memory: ", described(offset));
    if (end > found->first + found->second.bytes)
      return concat("reaches ", end - found->first - found->second.bytes, " bytes past the end of ", described(offset));
    return {};
  }

  /// When memory was last used in each stream. The arena counts as one piece.
  struct Uses {
    Times read{}, write{};
    std::uint64_t last(std::size_t stream) const { return std::max(read[stream], write[stream]); }
  };
  /// Of the arena or the allocation that holds it; null for others'.
  Uses* uses_of(const void* memory) {
    if (!seen_.holds(memory)) return nullptr;
    if (offset_of(memory) < arena_bytes_) return &uses_[0];
    const auto* const found = allocation_at(offset_of(memory));
    return found == nullptr ? nullptr : &uses_[found->first];
  }

  /// What is free of the arena now, and the most that was free since the last call. Returns the ranges that were
  /// released since then.
  std::vector<std::pair<std::size_t, std::size_t>> note_arena(const Arena::Range& now, const Arena::Range& widest) {
    std::vector<std::pair<std::size_t, std::size_t>> released;
    if (widest.begin < arena_free_.begin) released.emplace_back(widest.begin, arena_free_.begin);
    if (widest.end > arena_free_.end) released.emplace_back(arena_free_.end, widest.end);
    arena_free_ = now;
    return released;
  }

  /// f(text, where it was made) for every allocation that was not freed.
  template <class F>
  void for_each_leak(const F& f) const {
    for (const auto& [offset, allocation] : allocations_)
      if (allocation.live) f(concat("a leak: ", described(offset)), allocation.made);
  }

  std::string described(std::size_t offset) const {
    if (offset < arena_bytes_) return concat("byte ", offset, " of the arena");
    const auto* const found = allocation_at(offset);
    if (found == nullptr) return "no allocation";
    const auto& [begin, allocation] = *found;
    return concat(offset > begin ? concat("byte ", offset - begin, " of ") : "", "allocation ", allocation.number,
                  " of ", allocation.bytes, " bytes, ", allocation.live ? "made" : "freed, which was made", " by\n",
                  allocation.made.text());
  }

  std::size_t offset_of(const void* address) const {
    return static_cast<std::size_t>(static_cast<const std::byte*>(address) - seen_.begin());
  }

  /// Where the bytes of an address really are; addresses of others stay as they are.
  template <class T>
  T* real(T* address) const {
    if (!seen_.holds(address)) return address;
    return reinterpret_cast<T*>(static_cast<std::byte*>(real_.memory()) + offset_of(address));
  }

  // On the worker's thread.

  /// From now on nobody has written these bytes. They hold NaN in every float type.
  void forget(std::size_t offset, std::size_t bytes) {
    for (const auto& [memory, value] : {std::pair{&real_, 0xFF}, std::pair{&written_, 0}})
      std::memset(static_cast<std::byte*>(memory->memory()) + offset, value, bytes);
  }
  /// The same of what is never used again: the system may have its pages.
  void drop(std::size_t offset, std::size_t bytes) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t begin = (offset + page - 1) / page * page, end = (offset + bytes) / page * page;
    for (const auto* const memory : {&real_, &written_})
      if (begin < end) madvise(static_cast<std::byte*>(memory->memory()) + begin, end - begin, MADV_DONTNEED);
  }
  void note_written(const Operand& operand) {
    for (std::size_t i = 0; i < operand.rows; ++i)
      std::memset(note(operand.data) + i * operand.stride, 1, operand.row_bytes);
  }

  /// Empty, or which byte of the operand nobody wrote.
  std::string unwritten(const Operand& operand) const {
    for (std::size_t i = 0; i < operand.rows; ++i) {
      const auto* const row = note(operand.data) + i * operand.stride;
      if (const auto* const byte = std::memchr(row, 0, operand.row_bytes); byte != nullptr)
        return concat("byte ", static_cast<const std::byte*>(byte) - row, " of its row ", i, " was never written");
    }
    return {};
  }

  /// Empty, or which row of the operand ends in a block that others have written to as well.
  std::string foreign_tail(const Operand& operand, const std::vector<Operand>& operands) const {
    for (std::size_t i = 0; i < operand.rows; ++i) {
      const std::byte* const end = operand.data + i * operand.stride + operand.row_bytes;
      const std::size_t tail = (block_bytes - offset_of(end) % block_bytes) % block_bytes;
      for (std::size_t j = 0; j < tail; ++j) {
        if (note(end)[j] == std::byte{0}) continue;
        if (std::none_of(operands.begin(), operands.end(), [&](const Operand& o) { return writes_to(o, end + j); }))
          return concat("the last ", block_bytes, " bytes of its row ", i, " are not its own");
      }
    }
    return {};
  }

  /// What lies around a kernel's operands and what it may only read, to be compared after it has run.
  class Surroundings {
   public:
    Surroundings(const Memory& memory, const std::vector<Operand>& operands) : memory_(memory), operands_(operands) {
      for (const Operand& operand : operands) {
        if (operand.empty()) continue;
        const std::byte* const begin = operand.data;
        const std::byte* const end = begin + operand.span();
        constexpr std::size_t reach = 64, most = std::size_t{1} << 20;
        const std::byte* const from = memory.offset_of(begin) < reach ? memory.seen_.begin() : begin - reach;
        const bool whole = !operand.writes() || operand.stride > operand.row_bytes;
        if (whole && operand.span() <= most) {
          add(operand, from, end + reach);
        } else {
          add(operand, from, begin);
          add(operand, end, end + reach);
        }
      }
    }

    /// Empty, or what was written that no operand is, and the operand beside it.
    std::pair<std::string, const std::byte*> difference() const {
      for (const auto& piece : pieces_) {
        const auto* const now = memory_.real(piece.begin);
        if (std::memcmp(now, piece.bytes.data(), piece.bytes.size()) == 0) continue;
        const std::vector<char> may_change = written_bytes(piece.begin, piece.bytes.size());
        for (std::size_t i = 0; i < piece.bytes.size(); ++i) {
          if (now[i] == piece.bytes[i] || may_change[i] != 0) continue;
          const std::byte* const at = piece.begin + i;
          const Operand& near = *piece.operand;
          const auto place = at - near.data;
          const auto end = static_cast<std::ptrdiff_t>(near.span());
          const std::string_view where = place < 0      ? ", before its begin"
                                         : place >= end ? ", past its end"
                                                        : ", which it should leave alone";
          return {concat("writes to byte ", place, " of ", near.name, where), near.data};
        }
      }
      return {};
    }

   private:
    struct Piece {
      const Operand* operand;
      const std::byte* begin;
      std::vector<std::byte> bytes;
    };
    /// Which of these bytes are a result's.
    std::vector<char> written_bytes(const std::byte* begin, std::size_t bytes) const {
      std::vector<char> result(bytes, 0);
      const auto within = [&](const std::byte* at) {
        return static_cast<std::size_t>(std::clamp<std::ptrdiff_t>(at - begin, 0, static_cast<std::ptrdiff_t>(bytes)));
      };
      for (const Operand& o : operands_)
        for (std::size_t i = 0; o.writes() && i < o.rows; ++i) {
          const std::size_t from = within(o.data + i * o.stride), to = within(o.data + i * o.stride + o.row_bytes);
          std::fill(result.begin() + static_cast<std::ptrdiff_t>(from),
                    result.begin() + static_cast<std::ptrdiff_t>(to), 1);
        }
      return result;
    }
    void add(const Operand& operand, const std::byte* begin, const std::byte* end) {
      if (begin == end) return;
      pieces_.push_back({&operand, begin, {memory_.real(begin), memory_.real(begin) + (end - begin)}});
    }

    const Memory& memory_;
    const std::vector<Operand>& operands_;
    std::vector<Piece> pieces_;
  };

 private:
  static constexpr std::size_t total_bytes = std::size_t{1} << 32;

  struct Allocation {
    std::size_t number = 0, bytes = 0;
    Place made{};
    bool live = true;
  };
  using Entry = std::pair<const std::size_t, Allocation>;

  static bool writes_to(const Operand& operand, const std::byte* at) {
    if (operand.empty() || !operand.writes() || at < operand.data || at >= operand.data + operand.span()) return false;
    return static_cast<std::size_t>(at - operand.data) % operand.stride < operand.row_bytes;
  }

  std::byte* note(const void* address) const { return static_cast<std::byte*>(written_.memory()) + offset_of(address); }

  const Entry* allocation_at(std::size_t offset) const {
    auto after = allocations_.upper_bound(offset);
    return after == allocations_.begin() ? nullptr : &*--after;
  }

  // In a signal handler, while the host thread stands in a test.
  static std::size_t describe_touched(const void* owner, std::size_t offset, char* text, std::size_t size) {
    const auto& memory = *static_cast<const Memory*>(owner);
    if (offset < memory.arena_bytes_)
      return static_cast<std::size_t>(std::snprintf(text, size, "byte %zu of the arena, at", offset));
    const Entry* const found = memory.allocation_at(offset);
    if (found == nullptr) return static_cast<std::size_t>(std::snprintf(text, size, "no allocation, at"));
    return static_cast<std::size_t>(std::snprintf(text, size, "byte %zu of allocation %zu of %zu bytes%s, at",
                                                  offset - found->first, found->second.number, found->second.bytes,
                                                  found->second.live ? "" : ", which was freed"));
  }

  std::size_t arena_bytes_;
  Untouchable seen_;
  cpu::detail::Reservation real_, written_;
  std::size_t next_;
  Arena::Range arena_free_{0, arena_bytes_};
  std::map<std::size_t, Allocation> allocations_;  // by offset; those that were freed stay
  std::map<std::size_t, Uses> uses_;               // by offset, the arena's at 0
};

}  // namespace lora::proof
