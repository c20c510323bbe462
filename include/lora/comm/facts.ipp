#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "lora/comm/facts.hpp"
#include "lora/core/config.hpp"
#include "lora/core/error.hpp"
#include "lora/core/hash.hpp"

namespace lora::comm {

LORA_INLINE std::string text_of(Ranks& ranks, int rank, const std::string& text) {
  const bool gives = ranks.rank() == rank;
  const double own = gives ? static_cast<double>(text.size()) : 0;
  // Before memory is asked for: what comes over a network may be anything.
  constexpr double most = 1 << 28;
  const std::vector<double> sizes = ranks.all_gather(std::span<const double>(&own, 1));
  const double size = gives ? own : sizes[static_cast<std::size_t>(rank)];
  if (!(size >= 0 && size <= most))
    fail<Error>("[comm] rank ", rank, " gives a text of ", size, " bytes; expected at most 256 MiB");
  std::string given = gives ? text : std::string(static_cast<std::size_t>(size), '\0');
  std::vector<Index> begins;
  for (int r = 0; r <= ranks.size(); ++r) begins.push_back(r <= rank ? 0 : static_cast<Index>(size));
  ranks.gather_on_host(std::as_writable_bytes(std::span(given)), begins);
  return given;
}

LORA_INLINE void expect_same(Ranks& ranks, const std::vector<Fact>& facts) {
  if (ranks.size() == 1) return;
  std::string names;
  for (const Fact& fact : facts) names += fact.name + '\n';
  std::vector<double> sums;  // each in two halves, which a double holds exactly
  const auto add = [&](const std::string& text) {
    const std::uint64_t sum = checksum(text);
    sums.push_back(static_cast<double>(sum >> 32));
    sums.push_back(static_cast<double>(sum & 0xFFFFFFFFu));
  };
  // Ranks with other facts have another number of them: so much is compared first.
  add(names);
  const auto differing = [&] {  // the first rank that has not what rank 0 has, or none, and the place
    const std::vector<double> all = ranks.all_gather(std::span<const double>(sums));
    const auto count = std::ssize(sums);
    for (Index i = 0; i < count; ++i)
      for (int rank = 1; rank < ranks.size(); ++rank)
        if (all[static_cast<std::size_t>(rank * count + i)] != all[static_cast<std::size_t>(i)])
          return std::pair{rank, static_cast<std::size_t>(i / 2)};
    return std::pair{0, std::size_t{0}};
  };
  if (const int rank = differing().first; rank > 0)
    fail<ConfigError>("rank ", rank, " runs another version of this program than rank 0");
  sums.clear();
  for (const Fact& fact : facts) add(fact.value);
  const auto [rank, place] = differing();
  if (rank == 0) return;
  const Fact& fact = facts[place];
  // One after the other: compilers evaluate arguments in different orders, and ranks may differ in their build.
  const std::string first = text_of(ranks, 0, fact.value);
  const std::string other = text_of(ranks, rank, fact.value);
  fail<ConfigError>("ranks differ in ", fact.name, ": rank 0 has ", first, ", rank ", rank, " has ", other);
}

}  // namespace lora::comm
