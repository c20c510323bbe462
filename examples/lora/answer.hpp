#pragma once

#include <algorithm>
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
#include "lora/model/generate.hpp"
#include "lora/run/status_line.hpp"
#include "lora/settings/config.hpp"
#include "lora/tokenizer/stop_text.hpp"
#include "lora/tokenizer/tokenizer.hpp"

/// The prompt of a record, as the user wrote it.
inline std::string prompt_of(const lora::data::Sample& sample, const lora::tokenizer::Tokenizer& tokenizer) {
  if (sample.kind == lora::data::Sample::Kind::text) return sample.text;
  if (sample.kind == lora::data::Sample::Kind::tokens) return tokenizer.decode(sample.tokens);
  const auto question = sample.question();
  return question.empty() ? "" : question.back().content;
}

/// Answers records in groups and calls see(sample, answer) as soon as a group is done.
template <lora::AnyDevice D, class T>
void answer_all(D& dev, lora::model::Decoder<D, T>& decoder, const lora::tokenizer::Tokenizer& tokenizer,
                const lora::data::Encoder& encoder, std::span<const lora::data::Sample> samples,
                lora::model::GenerateOptions options, const std::vector<std::string>& stops,
                const std::function<void(const lora::data::Sample&, const std::string&)>& see) {
  constexpr std::size_t group_size = 16;
  const std::uint64_t seed = options.seed;
  options.vocabulary = tokenizer.vocab_size();
  lora::Index generated = 0;
  const lora::Index longest = lora::model::longest_sequence(decoder.config());
  bool warned = false;  // about a too long sequence
  lora::run::CountProgress progress("answering", "records", static_cast<lora::Index>(samples.size()));
  for (std::size_t begin = 0; begin < samples.size(); begin += group_size) {
    const auto group = samples.subspan(begin, std::min(group_size, samples.size() - begin));
    const auto done = static_cast<lora::Index>(begin);
    std::vector<std::vector<std::int32_t>> prompts;
    std::vector<lora::tokenizer::StopWatch> watches(group.size(), lora::tokenizer::StopWatch(tokenizer, stops));
    std::vector<lora::Index> lengths;
    const auto warn = [&](std::size_t i, lora::Index length) {
      if (longest == 0 || length <= longest || std::exchange(warned, true)) return;
      progress.clear();
      lora::inputs::warn_of_length(decoder.config(), length, group[i].where + ":");
    };
    for (const auto& sample : group) {
      prompts.push_back(encoder.prompt(sample));
      lengths.push_back(std::ssize(prompts.back()));
      warn(lengths.size() - 1, lengths.back());
    }
    options.seed = lora::mix_key(seed, begin);
    const lora::model::OnToken goes_on = [&](std::size_t i, std::int32_t token) {
      warn(i, ++lengths[i]);
      progress.reached(done, ++generated);
      return stops.empty() || !watches[i].add(token);
    };
    const auto results = lora::model::generate(dev, decoder, std::span<const std::vector<std::int32_t>>(prompts),
                                               options, group_size, goes_on);
    progress.clear();
    for (std::size_t i = 0; i < group.size(); ++i)
      see(group[i], lora::tokenizer::cut_at_stops(tokenizer.decode(results[i], true), stops));
  }
}
