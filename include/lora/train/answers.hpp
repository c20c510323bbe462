#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lora/data/batches/encode.hpp"
#include "lora/data/chat/sample.hpp"
#include "lora/decode/generate.hpp"
#include "lora/inputs/model_files.hpp"
#include "lora/run/status_line.hpp"
#include "lora/tokenizer/text_stream.hpp"
#include "lora/tokenizer/tokenizer.hpp"

namespace lora::train {

/// Records that are answered together.
constexpr std::size_t answered_together = 16;

/// An answer to a record.
struct Answer {
  std::string text{};
  bool cut = false;  ///< at the longest sequence that the model computes
};

/// Counts answers that are cut, to warn of all of them once.
class CutAnswers {
 public:
  void add(const data::Sample& sample, const Answer& answer) {
    if (answer.cut && count_++ == 0) first_ = sample.where;
  }
  /// Warns of those that were added, if there are any, unless it has warned before.
  void warn_once(const model::Config& config) {
    if (count_ == 0 || std::exchange(warned_, true)) return;
    const Index others = count_ - 1;
    log::warn(first_, ": the answer",
              others == 0 ? " ends" : concat(" and ", others, others == 1 ? " other end" : " others end"), " at ",
              nn::longest_rotation(config.rope), " tokens, prompt included: ", inputs::text_of_longest(config));
  }

 private:
  Index count_ = 0;
  std::string first_{};  // where the first one's record is
  bool warned_ = false;
};

/// Answers records and calls see(sample, answer) in their order, each as soon as it and those before it are answered,
/// num_return_sequences times for each, until options.stopped(). `stops`: texts that end an answer. `hear`: gets the
/// text of a single answer as it comes.
/// Throws   ConfigError naming the record of a prompt that is longer than the model computes, before the first answer
template <AnyDevice D, class T>
void answer_all(D& dev, model::Decoder<D, T>& decoder, const tokenizer::Tokenizer& tokenizer,
                const data::Encoder& encoder, std::span<const data::Sample> samples, decode::GenerateOptions options,
                const std::vector<std::string>& stops, run::CountProgress& progress,
                const std::function<void(const data::Sample&, const Answer&)>& see,
                const std::function<void(const std::string&)>& hear = {}) {
  options.vocabulary = tokenizer.vocab_size();
  const Index longest = model::longest_sequence(decoder.config()), limit = nn::longest_rotation(decoder.config().rope);
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
    prompts.push_back(inputs::supported_prompt(decoder.config(), encoder, samples[i]));
    lengths.insert(lengths.end(), each, std::ssize(prompts.back()));
    warn(i, lengths.back());
  }
  std::vector<tokenizer::TextStream> streams(samples.size() * each, tokenizer::TextStream(tokenizer, stops));
  std::vector<std::optional<Answer>> answers(samples.size() * each);
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
    const bool cut = lengths[i] == limit && std::ssize(tokens) < options.max_new_tokens && !streams[i].stopped();
    answers[i] = {tokenizer::cut_at_stops(tokenizer.decode(tokens, true), stops), cut};
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
