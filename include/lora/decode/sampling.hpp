#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "lora/core/config.hpp"
#include "lora/core/error.hpp"
#include "lora/core/random.hpp"

namespace lora::decode {

/// How the next token is chosen.
struct Sampling {
  double temperature = 0;  ///< 0: always the most likely token
  double top_p = 1;        ///< sample from the most likely tokens with this total probability
  Index top_k = 0;         ///< sample from this many of the most likely tokens; 0: all
  std::uint64_t seed = 42;
};

/// Chooses from one row of logits l:   P(id) ∝ exp(l_id / temperature) among the tokens that top_k and top_p leave.
/// The random number is a function of (seed, sequence, position). Of equal logits the smaller id counts as more likely.
/// Throws   ShapeError for no logits, ConfigError for a temperature or top_p that is no number
template <class A>
std::int32_t sample(std::span<const A> logits, const Sampling& how, std::uint64_t sequence, Index position) {
  if (logits.empty()) fail<ShapeError>("[sample] there are no logits to choose from");
  for (const auto& [name, value] : {std::pair{"temperature", how.temperature}, std::pair{"top_p", how.top_p}})
    if (std::isnan(value)) fail<ConfigError>("[sample] ", name, ": given nan, allowed: a number");
  if (how.temperature <= 0)
    return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());

  const auto logit = [&](std::int32_t id) { return logits[static_cast<std::size_t>(id)]; };
  const auto likelier = [&](std::int32_t a, std::int32_t b) {
    return logit(a) > logit(b) || (logit(a) == logit(b) && a < b);
  };
  std::vector<std::int32_t> heap(logits.size());
  std::iota(heap.begin(), heap.end(), 0);
  if (how.top_k > 0 && static_cast<std::size_t>(how.top_k) < heap.size()) {
    std::nth_element(heap.begin(), heap.begin() + how.top_k, heap.end(), likelier);
    heap.resize(static_cast<std::size_t>(how.top_k));
    std::sort(heap.begin(), heap.end());  // by id: the order in which the total is added up
  }
  const double top = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  const auto weight = [&](std::int32_t id) {
    return std::exp((static_cast<double>(logit(id)) - top) / how.temperature);
  };
  double total = 0;
  for (const auto id : heap) total += weight(id);

  // Seldom more than a few of the most likely are needed: a heap gives them one by one, without sorting all.
  const auto after = [&](std::int32_t a, std::int32_t b) { return likelier(b, a); };
  std::make_heap(heap.begin(), heap.end(), after);
  std::vector<std::pair<std::int32_t, double>> likely;  // ids with their weights, from the most likely on
  const auto take = [&] {
    std::pop_heap(heap.begin(), heap.end(), after);
    likely.emplace_back(heap.back(), weight(heap.back()));
    heap.pop_back();
    return likely.back().second;
  };
  const bool all = how.top_p >= 1;
  double kept = all ? total : take();
  while (!all && !heap.empty() && kept < how.top_p * total) kept += take();

  Random random(mix_key(how.seed, sequence, static_cast<std::uint64_t>(position)));
  double left = static_cast<double>(random.uniform()) * kept;
  for (std::size_t i = 0;; ++i) {
    if (i == likely.size()) {
      if (!all || heap.empty()) return likely.back().first;  // rounding has left something over
      take();
    }
    left -= likely[i].second;
    if (left < 0) return likely[i].first;
  }
}

}  // namespace lora::decode
