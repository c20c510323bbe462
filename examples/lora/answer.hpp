#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lora/core/random.hpp"
#include "lora/cpu/kernels.hpp"
#include "lora/data/encode.hpp"
#include "lora/data/sample.hpp"
#include "lora/io/tokenizer.hpp"
#include "lora/model/generate.hpp"
#include "lora/train/config.hpp"

/// Cut before the first of the texts that end an answer.
inline std::string cut_at_stops(std::string text, std::span<const std::string> stops) {
  for (const std::string& stop : stops)
    if (const auto at = stop.empty() ? std::string::npos : text.find(stop); at != std::string::npos) text.resize(at);
  return text;
}

/// The user's own words of a record.
inline std::string prompt_of(const lora::data::Sample& sample, const lora::io::Tokenizer& tokenizer) {
  if (sample.kind == lora::data::Sample::Kind::text) return sample.text;
  if (sample.kind == lora::data::Sample::Kind::tokens) return tokenizer.decode(sample.tokens);
  const auto question = sample.question();
  return question.empty() ? "" : question.back().content;
}

/// Answers records in groups and hands each answer on as soon as its group is done: see(sample, answer).
template <class Decoder>
void answer_all(lora::cpu::Device& dev, Decoder& decoder, const lora::io::Tokenizer& tokenizer,
                const lora::data::Encoder& encoder, std::span<const lora::data::Sample> samples,
                lora::model::GenerateOptions options, const std::vector<std::string>& stops,
                const std::function<void(const lora::data::Sample&, const std::string&)>& see) {
  constexpr std::size_t group_size = 16;
  const std::uint64_t seed = options.seed;
  options.vocabulary = tokenizer.vocab_size();
  for (std::size_t begin = 0; begin < samples.size(); begin += group_size) {
    const auto group = samples.subspan(begin, std::min(group_size, samples.size() - begin));
    std::vector<std::vector<std::int32_t>> prompts, answers(group.size());
    for (const auto& sample : group) prompts.push_back(encoder.prompt(sample));
    options.seed = lora::mix_key(seed, begin);
    const auto goes_on = [&](std::size_t i, std::int32_t token) {
      answers[i].push_back(token);
      const std::string text = tokenizer.decode(answers[i], true);
      return cut_at_stops(text, stops).size() == text.size();
    };
    const auto results =
        lora::model::generate(dev, decoder, std::span<const std::vector<std::int32_t>>(prompts), options, group_size,
                              stops.empty() ? lora::model::OnToken() : lora::model::OnToken(goes_on));
    for (std::size_t i = 0; i < group.size(); ++i)
      see(group[i], cut_at_stops(tokenizer.decode(results[i], true), stops));
  }
}
