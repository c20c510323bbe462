#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "lora/core/random.hpp"
#include "lora/model/decoder.hpp"

namespace lora::model {

/// How the next token is chosen.
struct GenerateOptions {
  Index max_new_tokens = 256;
  double temperature = 0;  ///< 0: always the most likely token
  double top_p = 1;        ///< sample from the most likely tokens with this total probability
  Index top_k = 0;         ///< sample from this many of the most likely tokens; 0: all
  std::uint64_t seed = 42;
  Index vocabulary = 0;  ///< use only the first so many ids, for heads wider than their tokenizer; 0: all
  std::vector<std::int32_t> stop_ids{};  ///< end a sequence; not part of the result
};

/// Called with each new token: the prompt's index and the token. Returning false ends that sequence after the token.
using OnToken = std::function<bool(std::size_t, std::int32_t)>;

/// Chooses from one row of logits. The random number is a function of (seed, sequence, position).
/// Throws   ShapeError for no logits, ConfigError for a temperature or top_p that is no number
template <class A>
std::int32_t sample(std::span<const A> logits, const GenerateOptions& options, std::uint64_t sequence, Index position) {
  if (logits.empty()) fail<ShapeError>("[sample] there are no logits to choose from");
  for (const auto& [name, value] : {std::pair{"temperature", options.temperature}, std::pair{"top_p", options.top_p}})
    if (std::isnan(value)) fail<ConfigError>("[sample] ", name, ": given nan, allowed: a number");
  if (options.temperature <= 0)
    return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto likelier = [&](std::int32_t a, std::int32_t b) {
    const A la = logits[static_cast<std::size_t>(a)], lb = logits[static_cast<std::size_t>(b)];
    return la > lb || (la == lb && a < b);
  };
  if (options.top_k > 0 && static_cast<std::size_t>(options.top_k) < order.size()) {
    std::nth_element(order.begin(), order.begin() + options.top_k, order.end(), likelier);
    order.resize(static_cast<std::size_t>(options.top_k));
  }
  std::sort(order.begin(), order.end(), likelier);
  std::vector<double> weights;
  const double top = static_cast<double>(logits[static_cast<std::size_t>(order.front())]);
  double total = 0;
  for (const auto id : order)
    total += weights.emplace_back(
        std::exp((static_cast<double>(logits[static_cast<std::size_t>(id)]) - top) / options.temperature));
  double kept = 0;
  std::size_t count = 0;
  while (count < weights.size() && (count == 0 || kept < options.top_p * total)) kept += weights[count++];
  Random random(mix_key(options.seed, sequence, static_cast<std::uint64_t>(position)));
  double left = static_cast<double>(random.uniform()) * kept;
  for (std::size_t i = 0; i < count; ++i) {
    left -= weights[i];
    if (left < 0) return order[i];
  }
  return order[count - 1];
}

namespace detail {

template <class A>
bool all_finite(std::span<const A> values) {
  int finite = 1;  // no early exit, so that the loop vectorises
  for (const A value : values) finite &= std::abs(value) <= std::numeric_limits<A>::max() ? 1 : 0;
  return finite != 0;
}

/// Decodes a group of prompts together, each in its own slot of a key/value cache.
template <AnyDevice D, class T>
class Generation {
 public:
  Generation(D& dev, Decoder<D, T>& model, std::span<const std::vector<std::int32_t>> prompts,
             const GenerateOptions& options, std::size_t first_sequence, const OnToken& on_token)
      : dev_(dev),
        model_(model),
        prompts_(prompts),
        options_(options),
        first_sequence_(first_sequence),
        on_token_(on_token),
        capacity_(capacity()),
        cache_(dev, model.config().num_hidden_layers, static_cast<Index>(prompts.size()), capacity_,
               model.config().num_key_value_heads * model.config().head_dim),
        results_(prompts.size()),
        lengths_(prompts.size(), 0) {}

  std::vector<std::vector<std::int32_t>> run() {
    std::vector<std::size_t> active;
    // Prompts are processed in passes of some thousand rows: enough for fast products, with bounded memory.
    for (std::size_t begin = 0; begin < prompts_.size();) {
      std::vector<std::size_t> group;
      std::size_t rows = 0;
      while (begin < prompts_.size() && (group.empty() || rows + prompts_[begin].size() <= prompt_rows)) {
        rows += prompts_[begin].size();
        group.push_back(begin++);
      }
      std::vector<std::vector<std::int32_t>> inputs;
      for (const auto slot : group) inputs.push_back(prompts_[slot]);
      step(group, inputs, active);
    }
    while (!active.empty()) {
      const std::vector<std::size_t> group = std::exchange(active, {});
      std::vector<std::vector<std::int32_t>> inputs;
      for (const auto slot : group) inputs.push_back({results_[slot].back()});
      step(group, inputs, active);
    }
    return std::move(results_);
  }

 private:
  static constexpr std::size_t prompt_rows = 2048;

  // Rows of the cache that each prompt gets: all rows are counted in 32 bits.
  Index capacity() const {
    std::size_t longest = 0;
    for (const auto& prompt : prompts_) longest = std::max(longest, prompt.size());
    constexpr Index most = std::numeric_limits<std::int32_t>::max();
    const auto slots = static_cast<Index>(prompts_.size()), prompt = static_cast<Index>(longest);
    if (prompt > most / slots || options_.max_new_tokens > most / slots - prompt)
      fail<ConfigError>("[generate] ", slots, " prompts of up to ", prompt, " tokens with ", options_.max_new_tokens,
                        " new ones each are more than a cache holds, ", most, " rows; continue fewer at a time, or ",
                        "with a smaller max_new_tokens");
    return prompt + options_.max_new_tokens;
  }

  // Runs the inputs of these slots, appends a token to each, and returns the slots that are not finished.
  void step(const std::vector<std::size_t>& slots, const std::vector<std::vector<std::int32_t>>& inputs,
            std::vector<std::size_t>& goes_on) {
    std::vector<std::int32_t> tokens, positions, cache_rows, last;
    std::vector<kernel::Segment> segments, keys;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const auto begin = static_cast<Index>(tokens.size());
      const Index base = static_cast<Index>(slots[i]) * capacity_;
      Index& length = lengths_[slots[i]];
      for (const auto token : inputs[i]) {
        tokens.push_back(token);
        positions.push_back(static_cast<std::int32_t>(length));
        cache_rows.push_back(static_cast<std::int32_t>(base + length));
        ++length;
      }
      segments.push_back({begin, static_cast<Index>(tokens.size())});
      keys.push_back({base, base + length});
      last.push_back(static_cast<std::int32_t>(tokens.size()) - 1);
    }
    const nn::Rows rows{tokens, positions, {}, segments, cache_rows};
    const nn::Pass<D, T> pass(dev_, rows, cache_, std::move(keys));
    const auto logits = model_.logits(dev_, pass, last);
    const auto vocabulary = static_cast<std::size_t>(model_.config().vocab_size);
    const auto choices =
        options_.vocabulary > 0 ? std::min(vocabulary, static_cast<std::size_t>(options_.vocabulary)) : vocabulary;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const std::size_t slot = slots[i];
      const std::span<const Accum<T>> row(logits.data() + i * vocabulary, choices);
      if (!all_finite(row))
        fail<NonFiniteError>("the logits of token ", lengths_[slot], " of prompt ", first_sequence_ + slot,
                             " are not all finite numbers");
      const auto token = sample(row, options_, first_sequence_ + slot, lengths_[slot]);
      if (std::find(options_.stop_ids.begin(), options_.stop_ids.end(), token) != options_.stop_ids.end()) continue;
      results_[slot].push_back(token);
      const bool wanted = !on_token_ || on_token_(first_sequence_ + slot, token);
      if (wanted && static_cast<Index>(results_[slot].size()) < options_.max_new_tokens) goes_on.push_back(slot);
    }
  }

  D& dev_;
  Decoder<D, T>& model_;
  std::span<const std::vector<std::int32_t>> prompts_;
  const GenerateOptions& options_;
  std::size_t first_sequence_;
  const OnToken& on_token_;
  Index capacity_;
  nn::KvCache<D, T> cache_;
  std::vector<std::vector<std::int32_t>> results_;
  std::vector<Index> lengths_;  // rows of each slot that are filled
};

}  // namespace detail

/// Continues each prompt until a stop id, `on_token` returns false or max_new_tokens, `batch` prompts at a time.
/// Throws   FormatError naming a prompt's id that is not in the model's vocabulary; ConfigError for an empty prompt or
///          batch, or more rows than a cache holds
template <AnyDevice D, class T>
std::vector<std::vector<std::int32_t>> generate(D& dev, Decoder<D, T>& model,
                                                std::span<const std::vector<std::int32_t>> prompts,
                                                const GenerateOptions& options, std::size_t batch = 16,
                                                const OnToken& on_token = {}) {
  if (batch == 0) fail<ConfigError>("[generate] batch: given 0, allowed: at least 1 prompt at a time");
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    if (prompts[i].empty()) fail<ConfigError>("a prompt without any token can't be continued");
    model.check_ids(concat("prompt ", i, ": the id"), prompts[i]);
  }
  std::vector<std::vector<std::int32_t>> results;
  if (options.max_new_tokens <= 0) return std::vector<std::vector<std::int32_t>>(prompts.size());
  for (std::size_t begin = 0; begin < prompts.size(); begin += batch) {
    const auto group = prompts.subspan(begin, std::min(batch, prompts.size() - begin));
    detail::Generation<D, T> generation(dev, model, group, options, begin, on_token);
    for (auto& result : generation.run()) results.push_back(std::move(result));
  }
  return results;
}

}  // namespace lora::model
