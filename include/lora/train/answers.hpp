#pragma once

#include <atomic>
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
#include "lora/tokenizer/stop_text.hpp"
#include "lora/tokenizer/tokenizer.hpp"

namespace lora::train {

/// Records that are answered together.
constexpr std::size_t answered_together = 16;

/// Answers records and calls see(sample, answer) in their order, each as soon as it and those before it are answered,
/// until *stop is no longer 0. `stops`: texts that end an answer. False if it was stopped.
template <AnyDevice D, class T>
bool answer_all(D& dev, model::Decoder<D, T>& decoder, const tokenizer::Tokenizer& tokenizer,
                const data::Encoder& encoder, std::span<const data::Sample> samples, decode::GenerateOptions options,
                const std::vector<std::string>& stops, run::CountProgress& progress,
                const std::function<void(const data::Sample&, const std::string&)>& see,
                const std::atomic<int>* stop = nullptr) {
  options.vocabulary = tokenizer.vocab_size();
  options.stop = stop;
  const Index longest = model::longest_sequence(decoder.config());
  bool warned = false;  // about a too long sequence
  const auto warn = [&](std::size_t i, Index length) {
    if (longest == 0 || length <= longest || std::exchange(warned, true)) return;
    progress.clear();
    inputs::warn_of_length(decoder.config(), length, samples[i].where + ":");
  };
  std::vector<std::vector<std::int32_t>> prompts;
  std::vector<Index> lengths;
  for (const auto& sample : samples) {
    prompts.push_back(encoder.prompt(sample));
    lengths.push_back(std::ssize(prompts.back()));
    warn(lengths.size() - 1, lengths.back());
  }
  std::vector<tokenizer::StopWatch> watches(samples.size(), tokenizer::StopWatch(tokenizer, stops));
  std::vector<std::optional<std::string>> answers(samples.size());
  std::size_t seen = 0;
  Index answered = 0, generated = 0;
  const decode::OnToken goes_on = [&](std::size_t i, std::int32_t token) {
    warn(i, ++lengths[i]);
    progress.reached(answered, ++generated);
    return stops.empty() || !watches[i].add(token);
  };
  const decode::OnEnd ended = [&](std::size_t i, const std::vector<std::int32_t>& tokens) {
    answers[i] = tokenizer::cut_at_stops(tokenizer.decode(tokens, true), stops);
    ++answered;
    if (i == seen) progress.clear();
    for (; seen < answers.size() && answers[seen]; ++seen) see(samples[seen], *std::exchange(answers[seen], {}));
  };
  decode::generate(dev, decoder, std::span<const std::vector<std::int32_t>>(prompts), options, answered_together,
                   goes_on, ended);
  progress.clear();
  return stop == nullptr || stop->load() == 0;
}

}  // namespace lora::train
