#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lora/data/encode.hpp"
#include "lora/data/sample.hpp"
#include "lora/decode/generate.hpp"
#include "lora/inputs/model_files.hpp"
#include "lora/run/status_line.hpp"
#include "lora/tokenizer/text_stream.hpp"
#include "lora/tokenizer/tokenizer.hpp"

namespace lora::train {

/// Records that are answered together.
constexpr std::size_t answered_together = 16;

/// Answers records and calls see(sample, answer) in their order, each as soon as it and those before it are answered,
/// num_return_sequences times for each, until options.stopped(). `stops`: texts that end an answer. `hear`: gets the
/// text of a single answer as it comes.
template <AnyDevice D, class T>
void answer_all(D& dev, model::Decoder<D, T>& decoder, const tokenizer::Tokenizer& tokenizer,
                const data::Encoder& encoder, std::span<const data::Sample> samples, decode::GenerateOptions options,
                const std::vector<std::string>& stops, run::CountProgress& progress,
                const std::function<void(const data::Sample&, const std::string&)>& see,
                const std::function<void(const std::string&)>& hear = {}) {
  options.vocabulary = tokenizer.vocab_size();
  const Index longest = model::longest_sequence(decoder.config());
  bool warned = false;  // about a too long sequence
  const auto warn = [&](std::size_t i, Index length) {
    if (longest == 0 || length <= longest || std::exchange(warned, true)) return;
    progress.clear();
    inputs::warn_of_length(decoder.config(), length, samples[i].where + ":");
  };
  const auto each = static_cast<std::size_t>(options.num_return_sequences);
  std::vector<std::vector<std::int32_t>> prompts;
  std::vector<Index> lengths;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    prompts.push_back(encoder.prompt(samples[i]));
    lengths.insert(lengths.end(), each, std::ssize(prompts.back()));
    warn(i, lengths.back());
  }
  std::vector<tokenizer::TextStream> streams(samples.size() * each, tokenizer::TextStream(tokenizer, stops));
  std::vector<std::optional<std::string>> answers(samples.size() * each);
  std::size_t seen = 0;
  Index answered = 0, generated = 0;
  const decode::OnToken goes_on = [&](std::size_t i, std::int32_t token) {
    warn(i / each, ++lengths[i]);
    if (!hear) progress.reached(answered, ++generated);
    if (!hear && stops.empty()) return true;
    const std::string text = streams[i].add(token);
    if (hear && !text.empty()) hear(text);
    return !streams[i].stopped();
  };
  const decode::OnEnd ended = [&](std::size_t i, const std::vector<std::int32_t>& tokens) {
    answers[i] = tokenizer::cut_at_stops(tokenizer.decode(tokens, true), stops);
    if (hear) hear(streams[i].finish());
    ++answered;
    if (i == seen) progress.clear();
    for (; seen < answers.size() && answers[seen]; ++seen) see(samples[seen / each], *std::exchange(answers[seen], {}));
  };
  decode::generate(dev, decoder, std::span<const std::vector<std::int32_t>>(prompts), options, answered_together,
                   goes_on, ended);
  progress.clear();
}

}  // namespace lora::train
