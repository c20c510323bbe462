#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace lora::ascend {

/// What was last copied from the host to which memory of the device. Some kernels need the numbers of rows (positions,
/// sequence_index) on the host, where they came from: to draw a dropout mask, say. No kernel writes such numbers, so
/// that the last copy to a place is what it holds, if it is read as numbers of rows.
class HostCopies {
 public:
  /// How large a copy is at most whose bytes are kept: one of a micro-batch's numbers, and any other. A larger one is
  /// known by its number alone.
  static constexpr std::size_t staged_bytes = std::size_t{64} << 20, other_bytes = std::size_t{1} << 20;

  void note(const void* target, const void* source, std::size_t bytes, bool staged) {
    if (bytes == 0) return;
    const auto begin = reinterpret_cast<std::uintptr_t>(target);
    forget(target, bytes);
    Copy& copy = copies_[begin];
    copy.size = bytes;
    copy.number = ++last_number_;
    if (bytes > (staged ? staged_bytes : other_bytes)) return;
    const auto* const from = static_cast<const std::byte*>(source);
    copy.bytes.assign(from, from + bytes);
  }

  /// To be called of memory that is freed as well.
  void forget(const void* memory, std::size_t bytes) {
    const auto begin = reinterpret_cast<std::uintptr_t>(memory), end = begin + bytes;
    auto at = copies_.lower_bound(begin);
    if (at != copies_.begin() && std::prev(at)->first + std::prev(at)->second.size > begin) --at;
    while (at != copies_.end() && at->first < end) at = copies_.erase(at);
  }

  /// The bytes of [memory, memory + bytes), or none where they did not come in one copy that was kept.
  std::span<const std::byte> find(const void* memory, std::size_t bytes) const {
    const auto* const copy = holding(memory, bytes);
    if (copy == nullptr || copy->second.bytes.empty()) return {};
    return std::span(copy->second.bytes).subspan(reinterpret_cast<std::uintptr_t>(memory) - copy->first, bytes);
  }

  /// Tells one copy from all others; 0 where the bytes did not come in one.
  std::uint64_t number_of(const void* memory, std::size_t bytes) const {
    const auto* const copy = holding(memory, bytes);
    return copy == nullptr ? 0 : copy->second.number;
  }

 private:
  struct Copy {
    std::size_t size = 0;
    std::uint64_t number = 0;
    std::vector<std::byte> bytes{};
  };
  using Copies = std::map<std::uintptr_t, Copy>;

  const Copies::value_type* holding(const void* memory, std::size_t bytes) const {
    const auto begin = reinterpret_cast<std::uintptr_t>(memory);
    auto at = copies_.upper_bound(begin);
    if (at == copies_.begin()) return nullptr;
    --at;
    return begin + bytes <= at->first + at->second.size ? &*at : nullptr;
  }

  Copies copies_;
  std::uint64_t last_number_ = 0;
};

}  // namespace lora::ascend
