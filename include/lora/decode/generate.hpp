#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "lora/decode/sampling.hpp"
#include "lora/decode/session.hpp"
#include "lora/model/decoder/decoder.hpp"

namespace lora::decode {

/// How sequences are continued.
struct GenerateOptions {
  Index max_new_tokens = 256;
  Index num_return_sequences = 1;  ///< answers to each prompt
  Sampling sampling{};
  Index vocabulary = 0;  ///< use only the first so many ids, for heads wider than their tokenizer; 0: all
  std::vector<std::int32_t> stop_ids{};  ///< end a sequence; not part of the result
  bool shares = true;                    ///< what prompts have in common at their beginning is processed once
  std::function<bool()> stopped{};       ///< asked before each step; true: no further token is chosen
};

/// Called with each new token: the result's index and the token. Returning false ends that sequence after the token.
using OnToken = std::function<bool(std::size_t, std::int32_t)>;
/// Called with each result as soon as its sequence ends: the result's index and the new tokens.
using OnEnd = std::function<void(std::size_t, const std::vector<std::int32_t>&)>;

namespace detail {

template <class A>
bool all_finite(std::span<const A> values) {
  int finite = 1;  // no early exit, so that the loop vectorizes
  for (const A value : values) finite &= std::abs(value) <= std::numeric_limits<A>::max() ? 1 : 0;
  return finite != 0;
}

/// The random numbers of the answers to a prompt: the same whatever else is answered.
inline std::uint64_t stream_of(std::size_t prompt, std::size_t answer) {
  return answer == 0 ? prompt : mix_key(prompt, answer);
}

/// Continues prompts in a session, `slots` at a time: the next one enters as soon as another has ended. What it has in
/// common with one that is there is not processed again.
template <AnyDevice D, class T>
class Generation {
 public:
  Generation(D& dev, model::Decoder<D, T>& model, std::span<const std::vector<std::int32_t>> prompts, std::size_t slots,
             const GenerateOptions& options, const OnToken& on_token, const OnEnd& on_end)
      : prompts_(prompts),
        options_(options),
        on_token_(on_token),
        on_end_(on_end),
        answers_(static_cast<std::size_t>(options.num_return_sequences)),
        slots_(std::min(slots, prompts.size() * answers_)),
        room_(room()),
        longest_(nn::longest_rotation(model.config().rope)),
        choices_(static_cast<std::size_t>(options.vocabulary > 0
                                              ? std::min(model.config().vocab_size, options.vocabulary)
                                              : model.config().vocab_size)),
        session_(dev, model, static_cast<Index>(slots_) * room_),
        results_(prompts.size() * answers_) {}

  /// Rows that went through the model so far.
  Index processed() const { return session_.processed(); }

  std::vector<std::vector<std::int32_t>> run() {
    for (;;) {
      if (options_.stopped && options_.stopped()) break;
      fill();
      if (active_.empty()) break;
      auto logits = session_.step();
      for (auto& [sequence, active] : active_) active.processed = true;
      for (std::size_t i = 0; i < logits.sequences.size(); ++i)
        choose(logits.sequences[i], logits.row(i).first(choices_));
    }
    return std::move(results_);
  }

 private:
  struct Active {
    std::size_t result = 0;
    bool processed = false;  // its prompt is
    SeenIds seen{};
  };

  // The longest beginning that a prompt has in common with one in the session, without its last token, whose logits are
  // wanted.
  struct Origin {
    Index length = 0;
    Sequence sequence{};
  };
  Origin longest_origin(std::span<const std::int32_t> prompt, bool processed) const {
    Origin longest;
    const auto last = prompt.end() - 1;
    for (const auto& [sequence, active] : active_) {
      if (active.processed != processed) continue;
      const auto& other = prompts_[active.result / answers_];
      const Index length = std::mismatch(prompt.begin(), last, other.begin(), other.end()).first - prompt.begin();
      if (length > longest.length) longest = {length, sequence};
    }
    return longest;
  }

  // Lets as many enter as there is room for: those that have waited, then the next ones.
  void fill() {
    std::vector<std::size_t> wait;
    const auto try_to_enter = [&](std::size_t result) {
      if (active_.size() == slots_ || !enter(result)) wait.push_back(result);
    };
    for (const std::size_t result : std::exchange(waiting_, {})) try_to_enter(result);
    while (active_.size() < slots_ && wait.size() < slots_ && next_ < results_.size()) try_to_enter(next_++);
    waiting_ = std::move(wait);
  }

  // False where a result waits for the next step, to go on from what that processes.
  bool enter(std::size_t result) {
    // A step reads all weights, which takes about as long as to process so many tokens.
    constexpr Index tokens_of_step = 128, worth_a_copy = 16;
    const std::span<const std::int32_t> prompt = prompts_[result / answers_];
    Origin origin;
    if (options_.shares) {
      origin = longest_origin(prompt, true);
      if (longest_origin(prompt, false).length >= origin.length + tokens_of_step) return false;
      if (origin.length < worth_a_copy) origin = {};
    }
    const Sequence sequence =
        origin.length > 0 ? session_.fork(origin.sequence, origin.length, room_) : session_.enter(room_);
    Active& active = active_[sequence];
    active.result = result;
    const auto there = static_cast<std::size_t>(origin.length);
    if (options_.sampling.repetition_penalty != 1) active.seen.add(prompt.first(there));
    append(sequence, prompt.subspan(there));
    return true;
  }

  // Tokens for which each slot has room.
  Index room() const {
    std::size_t longest = 0;
    for (const auto& prompt : prompts_) longest = std::max(longest, prompt.size());
    constexpr Index most = std::numeric_limits<std::int32_t>::max();
    const auto slots = static_cast<Index>(slots_), prompt = static_cast<Index>(longest);
    if (prompt > most / slots || options_.max_new_tokens > most / slots - prompt)
      fail<ConfigError>("[generate] ", slots, " prompts of up to ", prompt, " tokens with ", options_.max_new_tokens,
                        " new ones each are more than a cache holds, ", most, " rows; continue fewer at a time, or ",
                        "with a smaller max_new_tokens");
    return prompt + options_.max_new_tokens;
  }

  void append(Sequence sequence, std::span<const std::int32_t> tokens) {
    session_.append(sequence, tokens);
    if (options_.sampling.repetition_penalty != 1) active_.at(sequence).seen.add(tokens);
  }

  // Appends the token that was chosen to the sequence, or ends it.
  void choose(Sequence sequence, std::span<Accum<T>> logits) {
    const Active& active = active_.at(sequence);
    const std::size_t i = active.result, prompt = i / answers_;
    const Index length = session_.length(sequence);
    if (!all_finite(std::span<const Accum<T>>(logits)))
      fail<NonFiniteError>("the logits of token ", length, " of prompt ", prompt, " are not all finite numbers");
    active.seen.penalize(logits, options_.sampling.repetition_penalty);
    const auto token =
        sample(std::span<const Accum<T>>(logits), options_.sampling, stream_of(prompt, i % answers_), length);
    std::vector<std::int32_t>& result = results_[i];
    const auto& stops = options_.stop_ids;
    if (length < longest_ && std::find(stops.begin(), stops.end(), token) == stops.end()) {
      result.push_back(token);
      const bool wanted = !on_token_ || on_token_(i, token);
      if (wanted && std::ssize(result) < options_.max_new_tokens) return append(sequence, std::span(&token, 1));
    }
    session_.leave(sequence);
    active_.erase(sequence);
    if (on_end_) on_end_(i, result);
  }

  std::span<const std::vector<std::int32_t>> prompts_;
  const GenerateOptions& options_;
  const OnToken& on_token_;
  const OnEnd& on_end_;
  std::size_t answers_;  // to each prompt
  std::size_t slots_;
  Index room_;
  Index longest_;        // tokens that a sequence may have
  std::size_t choices_;  // ids that may be chosen
  Session<D, T> session_;
  std::map<Sequence, Active> active_{};
  std::size_t next_ = 0;                // result that has not been looked at
  std::vector<std::size_t> waiting_{};  // before it
  std::vector<std::vector<std::int32_t>> results_;
};

}  // namespace detail

/// Continues each prompt until a stop id, `on_token` returns false, max_new_tokens or the longest sequence that the
/// model computes (nn::longest_rotation), up to `batch` sequences at a time. The results of a prompt are
/// num_return_sequences in a row. Where it was stopped, they are what there was by then.
/// Throws   FormatError naming a prompt's id that is not in the model's vocabulary; ConfigError for an empty prompt or
///          batch, a prompt that is longer than the model computes, no sequences, or more rows than a cache holds
template <AnyDevice D, class T>
std::vector<std::vector<std::int32_t>> generate(D& dev, model::Decoder<D, T>& model,
                                                std::span<const std::vector<std::int32_t>> prompts,
                                                const GenerateOptions& options, std::size_t batch = 16,
                                                const OnToken& on_token = {}, const OnEnd& on_end = {}) {
  if (batch == 0) fail<ConfigError>("[generate] batch: given 0, allowed: at least 1 prompt at a time");
  if (options.num_return_sequences < 1)
    fail<ConfigError>("[generate] num_return_sequences: given ", options.num_return_sequences, ", allowed: 1 or more");
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    if (prompts[i].empty()) fail<ConfigError>("a prompt without any token can't be continued");
    model.check_ids(concat("prompt ", i, ": the id"), prompts[i]);
  }
  std::vector<std::vector<std::int32_t>> results(prompts.size() *
                                                 static_cast<std::size_t>(options.num_return_sequences));
  if (prompts.empty()) return results;
  if (options.max_new_tokens <= 0) {
    for (std::size_t i = 0; on_end && i < results.size(); ++i) on_end(i, results[i]);
    return results;
  }
  return detail::Generation<D, T>(dev, model, prompts, batch, options, on_token, on_end).run();
}

}  // namespace lora::decode
