#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/model/decoder/decoder.hpp"
#include "lora/nn/pass.hpp"

namespace lora::decode {

/// A sequence of a session, by a number that no other sequence of it is given.
enum class Sequence : std::uint64_t {};

/// Logits of the token that comes next in each of n sequences.
/// Shapes   values (n, V)
template <class A>
struct NextLogits {
  std::vector<Sequence> sequences{};
  std::vector<A> values{};
  Index vocabulary = 0;  ///< V

  std::span<A> row(std::size_t i) { return std::span(values).subspan(i * width(), width()); }
  std::span<const A> row(std::size_t i) const { return std::span(values).subspan(i * width(), width()); }

 private:
  std::size_t width() const { return static_cast<std::size_t>(vocabulary); }
};

/// Sequences of tokens that a model reads and continues, over one key/value cache. They enter and leave at any time; a
/// token goes through the model once, whatever is appended to its sequence later.
///   append(sequence, tokens)   queues tokens
///   step()                     runs all that is queued, and gives the logits behind each sequence's last token
/// The model's values must not change while sequences are in the session.
template <AnyDevice D, class T>
class Session {
 public:
  /// Rows of a pass: enough for fast products, with bounded memory.
  static constexpr Index pass_rows = 2048;

  /// Device and decoder outlive the session. `rows`: tokens that there is room for from the start.
  /// Throws   ConfigError for more rows than a cache holds
  Session(D& dev, model::Decoder<D, T>& decoder, Index rows = 0)
      : dev_(dev),
        decoder_(decoder),
        cache_(dev, decoder.config().num_hidden_layers, checked(rows),
               decoder.config().num_key_value_heads * decoder.config().head_dim) {}

  /// An empty sequence. `room`: tokens for which it gets rows at once; more are found when it needs them.
  Sequence enter(Index room = 0) {
    if (room < 0) fail<ConfigError>("[session] room: given ", room, ", allowed: 0 or more tokens");
    const Index begin = find_room(room);
    const Sequence sequence{next_++};
    states_[sequence] = {begin, room, 0, {}};
    return sequence;
  }

  /// A new sequence of the first `length` tokens of another, which are not processed again. Its logits come with the
  /// next token that is appended to it. `room` as above.
  Sequence fork(Sequence of, Index length, Index room = 0) {
    expect_length(of, length);
    const Sequence sequence = enter(std::max(length, room));
    const State& from = at(of);
    State& to = at(sequence);
    to.cached = std::min(length, from.cached);
    cache_.copy(dev_, from.begin, to.begin, to.cached);
    append(sequence, std::span(from.queued).first(static_cast<std::size_t>(length - to.cached)));
    return sequence;
  }

  /// Queues tokens for the next step.
  /// Throws   FormatError for ids that are not in the vocabulary, ConfigError for more rows than a cache holds
  void append(Sequence sequence, std::span<const std::int32_t> tokens) {
    State& state = at(sequence);
    decoder_.check_ids(concat("sequence ", number(sequence), ": the id"), tokens);
    if (tokens.empty()) return;
    if (std::ssize(tokens) > most - state.length()) fail_rows(state.length(), std::ssize(tokens));
    reserve(state, state.length() + std::ssize(tokens));
    if (state.queued.empty()) waiting_.push_back(sequence);
    state.queued.insert(state.queued.end(), tokens.begin(), tokens.end());
  }

  /// Drops all tokens of a sequence but the first `length`.
  void truncate(Sequence sequence, Index length) {
    expect_length(sequence, length);
    State& state = at(sequence);
    state.cached = std::min(state.cached, length);
    state.queued.resize(static_cast<std::size_t>(length - state.cached));
    if (state.queued.empty()) std::erase(waiting_, sequence);
  }

  /// Ends a sequence; its rows are free for others.
  void leave(Sequence sequence) {
    at(sequence);
    std::erase(waiting_, sequence);
    states_.erase(sequence);
  }

  /// Tokens of a sequence, with those that are queued.
  Index length(Sequence sequence) const { return at(sequence).length(); }
  /// Rows of the cache.
  Index rows() const { return cache_.rows(); }
  /// Rows that went through the model so far.
  Index processed() const { return processed_; }

  /// Processes what is queued. The result has a row for each sequence to which something was appended, in that order.
  /// In passes of whole queues, of at most `pass_rows` rows; a queue that is longer has passes of its own, and so have
  /// single tokens behind others (Pass::decodes), whose numbers then do not depend on what else is queued.
  NextLogits<Accum<T>> step() {
    NextLogits<Accum<T>> result;
    result.vocabulary = decoder_.config().vocab_size;
    result.sequences = waiting_;
    result.values.resize(waiting_.size() * static_cast<std::size_t>(result.vocabulary));
    while (!waiting_.empty()) run_pass(result);
    return result;
  }

 private:
  static constexpr Index most = std::numeric_limits<std::int32_t>::max();  // rows are counted in 32 bits

  struct State {
    Index begin = 0, room = 0;  // its rows of the cache
    Index cached = 0;           // tokens whose rows are filled
    std::vector<std::int32_t> queued{};

    Index length() const { return cached + std::ssize(queued); }
    bool decodes() const { return cached > 0 && queued.size() == 1; }
  };

  static std::uint64_t number(Sequence sequence) { return static_cast<std::uint64_t>(sequence); }
  static Index checked(Index rows) {
    if (rows < 0 || rows > most)
      fail<ConfigError>("[session] rows: given ", rows, ", allowed: 0 to ", most, ", which a cache holds");
    return rows;
  }
  [[noreturn]] static void fail_rows(Index there, Index wanted) {
    fail<ConfigError>("[session] ", wanted, " more tokens behind ", there, " do not fit; a cache holds ", most,
                      " rows");
  }

  template <class States>
  static auto& find(States& states, Sequence sequence) {
    const auto found = states.find(sequence);
    if (found == states.end())
      fail<ConfigError>("[session] sequence ", number(sequence), ": not in the session, or it has left");
    return found->second;
  }
  State& at(Sequence sequence) { return find(states_, sequence); }
  const State& at(Sequence sequence) const { return find(states_, sequence); }
  void expect_length(Sequence sequence, Index length) const {
    const Index all = at(sequence).length();
    if (length < 0 || length > all)
      fail<ConfigError>("[session] sequence ", number(sequence), ": a length of ", length, " was asked for, of ", all,
                        " tokens");
  }

  // The rows that are taken, in their order.
  std::vector<kernel::Segment> taken() const {
    std::vector<kernel::Segment> all;
    for (const auto& [sequence, state] : states_)
      if (state.room > 0) all.push_back({state.begin, state.begin + state.room});
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
    return all;
  }
  // Where `room` rows are free; the cache grows where there are none.
  Index find_room(Index room) {
    Index begin = 0;
    for (const kernel::Segment& other : taken()) {
      if (other.begin - begin >= room) break;
      begin = other.end;
    }
    reach(begin, room);
    return begin;
  }
  void reach(Index begin, Index room) {
    if (room > most - begin) fail_rows(begin, room);
    if (begin + room > cache_.rows()) cache_.grow(dev_, std::max(begin + room, std::min(2 * cache_.rows(), most)));
  }
  // Gives a sequence at least `length` rows: where it is, or in another place.
  void reserve(State& state, Index length) {
    if (length <= state.room) return;
    const Index end = state.begin + state.room, room = std::max(length, std::min(2 * state.room, most));
    Index next = most;  // the begin of what follows
    for (const kernel::Segment& other : taken())
      if (other.begin >= end) next = std::min(next, other.begin);
    if (state.room > 0 && state.begin + room <= next) {
      reach(state.begin, room);
    } else {
      const Index begin = find_room(room);
      cache_.copy(dev_, state.begin, begin, state.cached);
      state.begin = begin;
    }
    state.room = room;
  }

  void run_pass(NextLogits<Accum<T>>& result) {
    struct Part {
      State* state;
      std::size_t count;
    };
    std::vector<Part> parts;
    nn::Batch batch;
    std::vector<kernel::Segment> keys;
    std::vector<std::int32_t> last;
    std::vector<Sequence> ended;  // those whose queue the pass empties
    const bool decodes = at(waiting_.front()).decodes();
    for (const Sequence sequence : waiting_) {
      State& state = at(sequence);
      if (state.decodes() != decodes) continue;
      const Index begin = batch.rows(), queued = std::ssize(state.queued);
      if (begin > 0 && begin + queued > pass_rows) break;
      const Index count = std::min(queued, pass_rows);
      batch.tokens.insert(batch.tokens.end(), state.queued.begin(), state.queued.begin() + count);
      for (Index i = state.cached; i < state.cached + count; ++i) {
        batch.positions.push_back(static_cast<std::int32_t>(i));
        batch.cache_rows.push_back(static_cast<std::int32_t>(state.begin + i));
      }
      batch.segments.push_back({begin, begin + count});
      keys.push_back({state.begin, state.begin + state.cached + count});
      parts.push_back({&state, static_cast<std::size_t>(count)});
      if (count < queued) break;
      last.push_back(static_cast<std::int32_t>(begin + count - 1));
      ended.push_back(sequence);
    }
    const nn::Pass<D, T> pass(dev_, batch, cache_, std::move(keys));
    const auto logits = decoder_.logits(dev_, pass, last);

    processed_ += batch.rows();
    for (const Part& part : parts) {
      part.state->cached += static_cast<Index>(part.count);
      part.state->queued.erase(part.state->queued.begin(),
                               part.state->queued.begin() + static_cast<std::ptrdiff_t>(part.count));
    }
    const auto width = static_cast<std::ptrdiff_t>(result.vocabulary);
    for (std::size_t i = 0; i < ended.size(); ++i) {
      const auto place = std::find(result.sequences.begin(), result.sequences.end(), ended[i]);
      std::copy_n(logits.begin() + static_cast<std::ptrdiff_t>(i) * width, width,
                  result.values.begin() + (place - result.sequences.begin()) * width);
      std::erase(waiting_, ended[i]);
    }
  }

  D& dev_;
  model::Decoder<D, T>& decoder_;
  nn::KvCache<D, T> cache_;
  std::map<Sequence, State> states_;
  std::vector<Sequence> waiting_;  // those with queued tokens, in the order in which they were appended
  std::uint64_t next_ = 0;
  Index processed_ = 0;
};

}  // namespace lora::decode
