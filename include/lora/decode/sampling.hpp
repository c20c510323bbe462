#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "lora/core/config.hpp"
#include "lora/core/error.hpp"
#include "lora/core/random.hpp"

namespace lora::decode {

/// How the next token is chosen. The filters are transformers', in its order: repetition_penalty, temperature, top_k,
/// top_p, min_p.
struct Sampling {
  double temperature = 0;         ///< 0: always the most likely token
  double top_p = 1;               ///< sample from the most likely tokens with this total probability
  Index top_k = 0;                ///< sample from this many of the most likely tokens; 0: all
  double min_p = 0;               ///< sample from tokens with this times the probability of the most likely, or more
  double repetition_penalty = 1;  ///< makes tokens less likely that are in the sequence already
  std::uint64_t seed = 42;
};

/// The ids that are in a sequence, prompt and answer, each once.
class SeenIds {
 public:
  void add(std::span<const std::int32_t> ids) {
    for (const auto id : ids)
      if (const auto at = std::lower_bound(ids_.begin(), ids_.end(), id); at == ids_.end() || *at != id)
        ids_.insert(at, id);
  }

  /// l ← l / penalty where l > 0, else l · penalty, for the logit l of each id that was seen. Ids past the logits count
  /// for nothing.
  /// Source   Keskar et al. 2019, CTRL
  template <class A>
  void penalize(std::span<A> logits, double penalty) const {
    for (const auto id : ids_) {
      if (static_cast<std::size_t>(id) >= logits.size()) break;
      A& logit = logits[static_cast<std::size_t>(id)];
      logit = static_cast<A>(logit < 0 ? static_cast<double>(logit) * penalty : static_cast<double>(logit) / penalty);
    }
  }

 private:
  std::vector<std::int32_t> ids_;  // in ascending order
};

/// The tokens that top_k, top_p and min_p leave of one row of logits l, from the most likely on, with their weights
/// exp((l_id − max l) / temperature). Of equal logits the smaller id counts as more likely, but top_k takes all that
/// are as likely as the last of its tokens. Throws   ConfigError for a temperature of 0 or less
template <class A>
class Candidates {
 public:
  using Candidate = std::pair<std::int32_t, double>;

  Candidates(std::span<const A> logits, const Sampling& how)
      : logits_(logits),
        temperature_(how.temperature),
        top_(static_cast<double>(*std::max_element(logits.begin(), logits.end()))) {
    if (!(temperature_ > 0)) fail<ConfigError>("[sample] temperature: given ", temperature_, ", allowed: above 0");
    heap_.resize(logits.size());
    std::iota(heap_.begin(), heap_.end(), 0);  // by id, also below: the order in which totals are added up
    if (how.top_k > 0 && static_cast<std::size_t>(how.top_k) < heap_.size()) {
      std::vector<A> values(logits.begin(), logits.end());
      const auto last = values.begin() + how.top_k - 1;
      std::nth_element(values.begin(), last, values.end(), std::greater<A>());
      std::erase_if(heap_, [&](std::int32_t id) { return logit(id) < *last; });
    }
    const double all = weight_of_heap();
    // Tokens past min_p come after all others, so that it may go first; top_p is a share of what top_k leaves.
    if (how.min_p > 0) std::erase_if(heap_, [&](std::int32_t id) { return weight(id) < std::min(how.min_p, 1.0); });
    total_ = how.min_p > 0 ? weight_of_heap() : all;
    std::make_heap(heap_.begin(), heap_.end(), after());
    if (how.top_p >= 1) return;
    total_ = take();
    while (!heap_.empty() && total_ < how.top_p * all) total_ += take();
    heap_.clear();
  }

  /// The weights of all of them.
  double total() const { return total_; }

  /// The i-th, from 0 on in this order; null behind the last. Seldom more than a few are asked for: a heap gives them
  /// one by one, without sorting all.
  const Candidate* at(std::size_t i) {
    if (i == taken_.size() && !heap_.empty()) take();
    return i < taken_.size() ? &taken_[i] : nullptr;
  }

 private:
  A logit(std::int32_t id) const { return logits_[static_cast<std::size_t>(id)]; }
  double weight(std::int32_t id) const { return std::exp((static_cast<double>(logit(id)) - top_) / temperature_); }
  double weight_of_heap() const {
    double sum = 0;
    for (const auto id : heap_) sum += weight(id);
    return sum;
  }
  auto after() const {
    return [this](std::int32_t a, std::int32_t b) { return logit(b) > logit(a) || (logit(a) == logit(b) && b < a); };
  }
  double take() {
    std::pop_heap(heap_.begin(), heap_.end(), after());
    taken_.emplace_back(heap_.back(), weight(heap_.back()));
    heap_.pop_back();
    return taken_.back().second;
  }

  std::span<const A> logits_;
  double temperature_, top_, total_ = 0;
  std::vector<std::int32_t> heap_;
  std::vector<Candidate> taken_;
};

/// Chooses from one row of logits:   P(id) ∝ the weight of id among the candidates.
/// The random number is a function of (seed, sequence, position).
/// Throws   ShapeError for no logits, ConfigError for a setting that is no number
template <class A>
std::int32_t sample(std::span<const A> logits, const Sampling& how, std::uint64_t sequence, Index position) {
  if (logits.empty()) fail<ShapeError>("[sample] there are no logits to choose from");
  for (const auto& [name, value] :
       {std::pair{"temperature", how.temperature}, std::pair{"top_p", how.top_p}, std::pair{"min_p", how.min_p}})
    if (std::isnan(value)) fail<ConfigError>("[sample] ", name, ": given nan, allowed: a number");
  if (how.temperature <= 0)
    return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  Candidates<A> candidates(logits, how);
  Random random(mix_key(how.seed, sequence, static_cast<std::uint64_t>(position)));
  double left = static_cast<double>(random.uniform()) * candidates.total();
  for (std::size_t i = 0;; ++i) {
    const auto* candidate = candidates.at(i);
    if (candidate == nullptr) return candidates.at(i - 1)->first;  // rounding has left something over
    left -= candidate->second;
    if (left < 0) return candidate->first;
  }
}

}  // namespace lora::decode
