#pragma once

#include <cstdint>
#include <string_view>

namespace lora {

/// A text as 64 bits, the same on every machine: tells texts apart, and starts random numbers by name.
/// Source   Fowler, Noll, Vo, FNV-1a
inline constexpr std::uint64_t text_hash(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return hash;
}

}  // namespace lora
