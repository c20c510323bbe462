#pragma once

#include "lora/core/config.hpp"
#include "lora/data/sampling/class_draws.hpp"

namespace lora::data {

LORA_INLINE std::vector<Index> apportion(Index total, std::span<const double> shares) {
  constexpr double rounding = 1e-9;  // of a quota that is a whole number but for its last bits
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  std::vector<Index> counts;
  std::vector<std::pair<double, std::size_t>> remainders;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const double quota = static_cast<double>(total) * (shares[i] / sum);
    counts.push_back(static_cast<Index>(std::floor(quota + rounding)));
    const double remainder = std::max(0.0, quota - static_cast<double>(counts.back()));
    remainders.emplace_back(-std::round(remainder / rounding), i);  // those that differ by rounding are equal
  }
  std::sort(remainders.begin(), remainders.end());
  Index left = total - std::accumulate(counts.begin(), counts.end(), Index{0});
  for (std::size_t i = 0; left > 0; ++i, --left) ++counts[remainders[i % remainders.size()].second];
  return counts;
}

}  // namespace lora::data

namespace lora::data::detail {

constexpr std::uint64_t class_purpose = 0x636C617373u;

}  // namespace lora::data::detail

namespace lora::data {

LORA_INLINE std::vector<std::uint32_t> draw_classes(std::span<const SequenceClass> classes,
                                                    std::span<const Index> counts, std::span<const Index> before,
                                                    std::uint64_t seed, std::uint64_t key) {
  std::vector<Index> ends;  // of each class, among the draws before they are mixed
  for (const Index count : counts) ends.push_back((ends.empty() ? 0 : ends.back()) + count);
  struct Turn {
    Index next;
    Index round = -1;
    std::vector<std::uint32_t> order{};  // of that round
  };
  std::vector<Turn> turns;
  for (const Index drawn : before) turns.push_back({drawn});
  std::vector<std::uint32_t> draws = permutation(ends.empty() ? 0 : ends.back(), key);
  for (std::uint32_t& draw : draws) {
    const auto number =
        static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), Index{draw}) - ends.begin());
    const SequenceClass& own = classes[number];
    Turn& turn = turns[number];
    const Index size = std::ssize(own.sequences);
    if (const Index round = turn.next / size; round != turn.round) {
      turn.order = permutation(
          size, mix_key(seed, detail::class_purpose, text_hash(own.label), static_cast<std::uint64_t>(round)));
      turn.round = round;
    }
    draw = own.sequences[turn.order[static_cast<std::size_t>(turn.next++ % size)]];
  }
  return draws;
}

}  // namespace lora::data
