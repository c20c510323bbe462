#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

// All content hashes. They are stored in files, so their values must never change:
//   text_hash     FNV-1a    names and templates; seeds of random numbers
//   checksum      XXH64     files of a checkpoint, weights
//   Fingerprint             records of data sets
//   crc32c        CRC-32C   TensorBoard's records
// (Hash tables have their own functions, which may change.)

namespace lora {

namespace detail {

/// Reads little-endian words, as every machine that this library runs on stores them.
template <class Word>
Word word_at(const std::byte* bytes) {
  Word word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

}  // namespace detail

/// A 64-bit hash of a text.
/// Source   Fowler, Noll, Vo, FNV-1a
inline constexpr std::uint64_t text_hash(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return hash;
}

/// A 64-bit checksum against accidental damage, of bytes that come in pieces; not cryptographic.
/// Source   Collet, XXH64 with seed 0
class Checksum {
 public:
  void add(std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    size_ += bytes.size();
    if (held_ > 0) {
      const std::size_t count = std::min(stripe - held_, bytes.size());
      std::memcpy(rest_.data() + held_, bytes.data(), count);
      held_ += count;
      bytes = bytes.subspan(count);
      if (held_ < stripe) return;
      take(rest_.data());
      held_ = 0;
    }
    for (; bytes.size() >= stripe; bytes = bytes.subspan(stripe)) take(bytes.data());
    if (!bytes.empty()) std::memcpy(rest_.data(), bytes.data(), bytes.size());
    held_ = bytes.size();
  }

  std::uint64_t value() const {
    std::uint64_t hash = p5;
    if (size_ >= stripe) {
      hash = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) + std::rotl(lanes_[3], 18);
      for (const std::uint64_t lane : lanes_) hash = (hash ^ round(0, lane)) * p1 + p4;
    }
    hash += size_;
    const std::byte* at = rest_.data();
    std::size_t left = held_;
    for (; left >= 8; left -= 8, at += 8)
      hash = std::rotl(hash ^ round(0, detail::word_at<std::uint64_t>(at)), 27) * p1 + p4;
    if (left >= 4) {
      hash = std::rotl(hash ^ (detail::word_at<std::uint32_t>(at) * p1), 23) * p2 + p3;
      at += 4;
      left -= 4;
    }
    for (; left > 0; --left, ++at) hash = std::rotl(hash ^ (std::to_integer<std::uint64_t>(*at) * p5), 11) * p1;
    hash = (hash ^ (hash >> 33)) * p2;
    hash = (hash ^ (hash >> 29)) * p3;
    return hash ^ (hash >> 32);
  }

 private:
  static constexpr std::uint64_t p1 = 0x9E3779B185EBCA87u, p2 = 0xC2B2AE3D27D4EB4Fu, p3 = 0x165667B19E3779F9u,
                                 p4 = 0x85EBCA77C2B2AE63u, p5 = 0x27D4EB2F165667C5u;
  static constexpr std::size_t stripe = 32;

  static std::uint64_t round(std::uint64_t lane, std::uint64_t word) { return std::rotl(lane + word * p2, 31) * p1; }
  void take(const std::byte* at) {
    for (std::uint64_t& lane : lanes_) {
      lane = round(lane, detail::word_at<std::uint64_t>(at));
      at += 8;
    }
  }

  std::array<std::uint64_t, 4> lanes_ = {p1 + p2, p2, 0, 0 - p1};
  std::array<std::byte, stripe> rest_{};  // of it held_ bytes, which fill no stripe yet
  std::size_t held_ = 0;
  std::uint64_t size_ = 0;
};

inline std::uint64_t checksum(std::span<const std::byte> bytes) {
  Checksum sum;
  sum.add(bytes);
  return sum.value();
}
inline std::uint64_t checksum(std::string_view text) {
  return checksum(std::as_bytes(std::span(text.data(), text.size())));
}

/// Sixteen hexadecimal digits.
inline std::string checksum_text(std::uint64_t sum) {
  std::string text(16, '0');
  for (std::size_t i = 16; i-- > 0; sum >>= 4) text[i] = "0123456789abcdef"[sum & 15u];
  return text;
}

/// A 64-bit hash of a list of byte strings, a word at a time.
class Fingerprint {
 public:
  explicit Fingerprint(std::uint64_t count) : hash_(mix(count)) {}

  void add(std::string_view bytes) {
    for (std::size_t at = 0; at < bytes.size(); at += sizeof hash_) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes.data() + at, std::min(sizeof word, bytes.size() - at));
      hash_ = mix(hash_ ^ word);
    }
    hash_ = mix(hash_ ^ bytes.size());
  }
  std::uint64_t value() const { return hash_; }

 private:
  static std::uint64_t mix(std::uint64_t word) {
    word *= 0x9E3779B97F4A7C15u;
    return word ^ (word >> 32);
  }

  std::uint64_t hash_;
};

/// Source   RFC 3720, appendix B.4: polynomial 0x1EDC6F41, reflected
inline std::uint32_t crc32c(std::string_view bytes) {
  static constexpr auto table = [] {
    std::array<std::uint32_t, 256> entries{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t crc = i;
      for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) ? 0x82F63B78u : 0u);
      entries[i] = crc;
    }
    return entries;
  }();
  std::uint32_t crc = ~0u;
  for (const char byte : bytes) crc = (crc >> 8) ^ table[(crc ^ static_cast<unsigned char>(byte)) & 0xFFu];
  return ~crc;
}

}  // namespace lora
