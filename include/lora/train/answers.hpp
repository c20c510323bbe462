#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lora/core/random.hpp"
#include "lora/data/encode.hpp"
#include "lora/data/sample.hpp"
#include "lora/inputs/model_files.hpp"
#include "lora/decode/generate.hpp"
#include "lora/run/status_line.hpp"
#include "lora/tokenizer/stop_text.hpp"
#include "lora/tokenizer/tokenizer.hpp"

namespace lora::train {

/// Records that are answered together.
constexpr std::size_t answered_together = 16;

/// Answers records in groups and calls see(sample, answer) as soon as a group is done, until *stop is no longer 0.
/// `stops`: texts that end an answer. False if it was stopped.
template <AnyDevice D, class T>
bool answer_all(D& dev, model::Decoder<D, T>& decoder, const tokenizer::Tokenizer& tokenizer,
                const data::Encoder& encoder, std::span<const data::Sample> samples, model::GenerateOptions options,
                const std::vector<std::string>& stops, run::CountProgress& progress,
                const std::function<void(const data::Sample&, const std::string&)>& see,
                const std::atomic<int>* stop = nullptr) {
  const auto is_stopped = [&] { return stop != nullptr && stop->load() != 0; };
  const std::uint64_t seed = options.seed;
  options.vocabulary = tokenizer.vocab_size();
  Index generated = 0;
  const Index longest = model::longest_sequence(decoder.config());
  bool warned = false;  // about a too long sequence
  for (std::size_t begin = 0; begin < samples.size(); begin += answered_together) {
    if (is_stopped()) return false;
    const auto group = samples.subspan(begin, std::min(answered_together, samples.size() - begin));
    const auto done = static_cast<Index>(begin);
    std::vector<std::vector<std::int32_t>> prompts;
    std::vector<tokenizer::StopWatch> watches(group.size(), tokenizer::StopWatch(tokenizer, stops));
    std::vector<Index> lengths;
    const auto warn = [&](std::size_t i, Index length) {
      if (longest == 0 || length <= longest || std::exchange(warned, true)) return;
      progress.clear();
      inputs::warn_of_length(decoder.config(), length, group[i].where + ":");
    };
    for (const auto& sample : group) {
      prompts.push_back(encoder.prompt(sample));
      lengths.push_back(std::ssize(prompts.back()));
      warn(lengths.size() - 1, lengths.back());
    }
    options.seed = mix_key(seed, begin);
    const model::OnToken goes_on = [&](std::size_t i, std::int32_t token) {
      warn(i, ++lengths[i]);
      progress.reached(done, ++generated);
      return !is_stopped() && (stops.empty() || !watches[i].add(token));
    };
    const auto results = model::generate(dev, decoder, std::span<const std::vector<std::int32_t>>(prompts), options,
                                         answered_together, goes_on);
    progress.clear();
    if (is_stopped()) return false;
    for (std::size_t i = 0; i < group.size(); ++i)
      see(group[i], tokenizer::cut_at_stops(tokenizer.decode(results[i], true), stops));
  }
  return true;
}

}  // namespace lora::train
