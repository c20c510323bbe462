#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/data/batches/encode.hpp"
#include "lora/data/chat/chat_template.hpp"
#include "lora/decode/generate.hpp"
#include "lora/decode/sampling.hpp"
#include "lora/decode/session.hpp"
#include "lora/decode/thoughts.hpp"
#include "lora/decode/transcript.hpp"
#include "lora/model/decoder/decoder.hpp"
#include "lora/tokenizer/text_stream.hpp"
#include "lora/tokenizer/tokenizer.hpp"

namespace lora::decode {

/// How a conversation goes on.
struct ConversationOptions {
  GenerateOptions generate{};        ///< with max_new_tokens 0 an answer has as many as the context has room for
  std::vector<std::string> stops{};  ///< texts that end an answer
  Index longest = 0;                 ///< tokens of the whole conversation; 0: any number
};

/// An answer of a conversation, whose last turn it is.
struct Answer {
  enum class End {
    complete,        ///< at a stop id or a stop text
    stopped,         ///< as the options' `stop` asked for
    max_new_tokens,  ///< it was to have no more
    context,         ///< the conversation can't have more
  };

  data::Message message{};
  End end = End::complete;
  Index tokens = 0;         ///< of the answer
  Index processed = 0;      ///< rows that went through the model for it: what it had not read before, and the answer
  double seconds = 0;       ///< for all of that
  std::size_t dropped = 0;  ///< the model no longer sees the first so many turns
  std::size_t newly = 0;    ///< and saw so many of these until now
};

/// A conversation with a model, which keeps what it has read in its cache: a turn costs its own tokens, and those that
/// the template writes otherwise once another turn follows, such as an answer whose reasoning it then leaves out.
template <AnyDevice D, class T>
class Conversation {
 public:
  /// All of these outlive it; `encoder` has a template.
  Conversation(D& dev, model::Decoder<D, T>& decoder, const tokenizer::Tokenizer& tokenizer,
               const data::Encoder& encoder, ConversationOptions options)
      : tokenizer_(tokenizer),
        encoder_(encoder),
        options_(std::move(options)),
        choices_(static_cast<std::size_t>(std::min(decoder.config().vocab_size, tokenizer.vocab_size()))),
        transcript_(encoder, options_.longest),
        session_(dev, decoder),
        sequence_(session_.enter()) {}

  Transcript& transcript() { return transcript_; }

  /// Answers the last turn; the answer becomes the next. `hear` gets its words as they come.
  /// Throws   FormatError if the conversation can't be continued (see Transcript::prompt), NonFiniteError
  Answer answer(const std::function<void(const Words&)>& hear) {
    const auto begin = std::chrono::steady_clock::now();
    const Index processed = session_.processed(), most = options_.generate.max_new_tokens;
    // An answer is to have room, but not at the price of most of the conversation.
    const Index room = most > 0 ? std::min(most, options_.longest / 2) : options_.longest / 4;
    const Transcript::Prompt prompt = transcript_.prompt(room);
    Answer answer;
    answer.dropped = prompt.dropped;
    answer.newly = prompt.newly;
    const auto end = [&] { return options_.generate.stopped && options_.generate.stopped(); };
    auto logits = read(prompt.ids, end);

    tokenizer::TextStream text(tokenizer_, options_.stops);
    Thoughts thoughts(begin_of_thoughts());
    const auto tell = [&](const Words& words) {
      answer.message.content += words.content;
      if (!words.reasoning.empty())
        answer.message.reasoning = concat(answer.message.reasoning.value_or(""), std::string_view(words.reasoning));
      if (hear && !(words.content.empty() && words.reasoning.empty())) hear(words);
    };
    SeenIds seen;
    if (options_.generate.sampling.repetition_penalty != 1) seen.add(prompt.ids);
    const std::uint64_t number = answers_++;
    for (answer.end = Answer::End::stopped; !end();) {
      const std::int32_t token = choose(logits, seen, number);
      const auto& stops = options_.generate.stop_ids;
      answer.end = Answer::End::complete;
      if (std::find(stops.begin(), stops.end(), token) != stops.end()) break;
      ++answer.tokens;
      tell(thoughts.add(text.add(token)));
      if (text.stopped()) break;
      answer.end = Answer::End::max_new_tokens;
      if (answer.tokens == most) break;
      answer.end = Answer::End::context;
      if (std::ssize(read_) + 1 == options_.longest) break;
      answer.end = Answer::End::stopped;
      if (options_.generate.sampling.repetition_penalty != 1) seen.add(std::span(&token, 1));
      append(std::span(&token, 1));
      logits = session_.step();
    }
    tell(thoughts.add(text.finish()));
    tell(thoughts.finish());
    if (thoughts.reasoned() && !answer.message.reasoning) answer.message.reasoning = "";
    answer.message.role = "assistant";
    transcript_.add(as_turn(answer.message));
    answer.processed = session_.processed() - processed;
    answer.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return answer;
  }

 private:
  /// Rows that are read between two looks at whether to stop.
  static constexpr std::size_t read_at_once = 512;

  void append(std::span<const std::int32_t> ids) {
    session_.append(sequence_, ids);
    read_.insert(read_.end(), ids.begin(), ids.end());
  }

  // Reads what differs from what was read, at least the last token; not to the end where `ended` says so.
  template <class F>
  NextLogits<Accum<T>> read(const std::vector<std::int32_t>& ids, const F& ended) {
    const auto known = std::mismatch(read_.begin(), read_.end(), ids.begin(), ids.end() - 1).first - read_.begin();
    session_.truncate(sequence_, known);
    read_.resize(static_cast<std::size_t>(known));
    NextLogits<Accum<T>> logits;
    for (auto rest = std::span(ids).subspan(static_cast<std::size_t>(known)); !rest.empty() && !ended();) {
      const std::size_t count = std::min(rest.size(), read_at_once);
      append(rest.first(count));
      logits = session_.step();
      rest = rest.subspan(count);
    }
    return logits;
  }

  std::int32_t choose(NextLogits<Accum<T>>& next, const SeenIds& seen, std::uint64_t number) const {
    const std::span<Accum<T>> logits = next.row(0).first(choices_);
    const Index length = std::ssize(read_);
    if (!detail::all_finite(std::span<const Accum<T>>(logits)))
      fail<NonFiniteError>("the logits of token ", length, " of the conversation are not all finite numbers");
    seen.penalize(logits, options_.generate.sampling.repetition_penalty);
    return sample(std::span<const Accum<T>>(logits), options_.generate.sampling, number, length);
  }

  Thoughts::Begin begin_of_thoughts() const {
    const data::ChatTemplate& chat = *encoder_.chat_template();
    if (!chat.thinks()) return Thoughts::Begin::absent;
    return chat.opens_reasoning(encoder_.options().render) ? Thoughts::Begin::open : Thoughts::Begin::possible;
  }

  // As the template takes it.
  data::Message as_turn(data::Message message) const {
    if (message.reasoning && !encoder_.chat_template()->takes_reasoning()) {
      message.content = concat("<think>\n", *message.reasoning, "\n</think>\n\n", message.content);
      message.reasoning.reset();
    }
    return message;
  }

  const tokenizer::Tokenizer& tokenizer_;
  const data::Encoder& encoder_;
  ConversationOptions options_;
  std::size_t choices_;  // ids that may be chosen
  Transcript transcript_;
  Session<D, T> session_;
  Sequence sequence_;
  std::vector<std::int32_t> read_;  // the tokens of the sequence
  std::uint64_t answers_ = 0;       // given so far, each with random numbers of its own
};

}  // namespace lora::decode
