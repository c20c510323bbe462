#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

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

/// A 64-bit checksum: finds damage, not malice.
/// Source   Collet, XXH64 with seed 0
inline std::uint64_t checksum(std::span<const std::byte> bytes) {
  constexpr std::uint64_t p1 = 0x9E3779B185EBCA87u, p2 = 0xC2B2AE3D27D4EB4Fu, p3 = 0x165667B19E3779F9u,
                          p4 = 0x85EBCA77C2B2AE63u, p5 = 0x27D4EB2F165667C5u;
  const auto round = [](std::uint64_t lane, std::uint64_t word) { return std::rotl(lane + word * p2, 31) * p1; };
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  std::uint64_t hash = p5;
  if (left >= 32) {
    std::uint64_t lanes[4] = {p1 + p2, p2, 0, 0 - p1};
    for (; left >= 32; left -= 32)
      for (std::uint64_t& lane : lanes) {
        lane = round(lane, detail::word_at<std::uint64_t>(at));
        at += 8;
      }
    hash = std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) + std::rotl(lanes[3], 18);
    for (const std::uint64_t lane : lanes) hash = (hash ^ round(0, lane)) * p1 + p4;
  }
  hash += bytes.size();
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
inline std::uint64_t checksum(std::string_view text) {
  return checksum(std::as_bytes(std::span(text.data(), text.size())));
}

/// A checksum of each of several long byte strings, by so many threads. The threads read pieces of a fixed size, so
/// that their number does not change the values: a string's is the checksum of those of its pieces.
inline std::vector<std::uint64_t> checksums(std::span<const std::span<const std::byte>> strings, int threads) {
  constexpr std::size_t piece_bytes = std::size_t{1} << 20;
  struct Piece {
    std::span<const std::byte> bytes;
    std::uint64_t sum = 0;
  };
  std::vector<Piece> pieces;
  std::vector<std::size_t> ends;
  for (auto bytes : strings) {
    for (; !bytes.empty(); bytes = bytes.subspan(std::min(piece_bytes, bytes.size())))
      pieces.push_back({bytes.first(std::min(piece_bytes, bytes.size()))});
    ends.push_back(pieces.size());
  }
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i; (i = next.fetch_add(1)) < pieces.size();) pieces[i].sum = checksum(pieces[i].bytes);
  };
  std::vector<std::thread> others;
  const auto wanted = std::min(static_cast<std::size_t>(std::max(threads, 1)), pieces.size());
  try {
    while (others.size() + 1 < wanted) others.emplace_back(work);
  } catch (const std::system_error&) {  // no more threads: those that there are do it
  }
  work();
  for (std::thread& other : others) other.join();
  std::vector<std::uint64_t> sums;
  for (std::size_t begin = 0; const std::size_t end : ends) {
    std::vector<std::uint64_t> parts;
    for (; begin < end; ++begin) parts.push_back(pieces[begin].sum);
    sums.push_back(checksum(std::as_bytes(std::span(parts))));
  }
  return sums;
}

/// Sixteen hexadecimal digits.
inline std::string checksum_text(std::uint64_t sum) {
  std::string text(16, '0');
  for (std::size_t i = 16; i-- > 0; sum >>= 4) text[i] = "0123456789abcdef"[sum & 15u];
  return text;
}

}  // namespace lora
