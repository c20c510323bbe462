#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "lora/core/hash.hpp"

namespace lora::tokenizer {

/// Hashes of what a tokenizer computes with: where two tokenizers differ, they say in what. They are kept in files, so
/// equal tokenizers must have equal ones in all versions. The chat template is not part of them.
struct Fingerprints {
  std::uint64_t vocabulary = 0;    ///< tokens and their ids
  std::uint64_t merges = 0;        ///< how pieces are joined: pairs by rank, or scores
  std::uint64_t added_tokens = 0;  ///< tokens found in the text as they are written, and those that begin and end texts
  std::uint64_t normalizer = 0;    ///< how text is rewritten first
  std::uint64_t splitting = 0;     ///< how text is cut into words

  bool operator==(const Fingerprints&) const = default;

  /// The parts, each with its name in plain words.
  std::array<std::pair<std::string_view, std::uint64_t>, 5> named() const {
    return {{{"vocabulary", vocabulary},
             {"merges", merges},
             {"added tokens", added_tokens},
             {"normalizer", normalizer},
             {"splitting into words", splitting}}};
  }
};

namespace detail {

/// The fingerprint of numbers and texts in their order.
class FingerprintSum {
 public:
  void add(std::string_view text) { sum_.add(text); }
  void add_number(std::int64_t number) { add_numbers(std::span(&number, 1)); }
  /// `Number` has no padding.
  template <class Number>
  void add_numbers(std::span<Number> numbers) {
    sum_.add({reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes()});
  }
  std::uint64_t value() const { return sum_.value(); }

 private:
  Fingerprint sum_{0};
};

}  // namespace detail

}  // namespace lora::tokenizer
