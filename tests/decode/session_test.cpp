// Sequences that enter, grow, fork and leave, against whole forward passes over each of them.

#include "lora/decode/session.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "lora/instantiate.hpp"
#include "support/decoding.hpp"
#include "support/effort.hpp"
#include "support/message_of.hpp"
#include "support/random_gguf.hpp"
#include "support/random_model.hpp"
#include "support/temp_folder.hpp"

namespace session_test {

namespace {

using namespace lora;
using namespace lora::test;
using decode::Sequence;
using D = cpu::Device;

struct Subject {
  TempFolder folder;
  D dev{1};
  model::Source source;
  model::Decoder<D, float> decoder;

  explicit Subject(const RandomModel& shape = {}) : source(open(folder, shape)), decoder(dev, source) {}
  static model::Source open(const TempFolder& folder, const RandomModel& shape) {
    write_random_model(folder.path(), shape);
    return model::Source::open(folder.path());
  }
};

Tokens sequence_of(Index length, std::int32_t seed = 1) {
  Tokens tokens;
  for (std::int32_t i = 0; i < length; ++i) tokens.push_back((i * i + seed * (i + 3)) % 61);
  return tokens;
}

/// What a whole pass over these tokens says of the next one.
std::vector<float> whole(Subject& s, const Tokens& tokens) {
  return logits_of(s.dev, s.decoder, tokens, {static_cast<std::int32_t>(tokens.size()) - 1});
}

/// Row i of the result is that of the whole pass. Attention adds up other blocks, so the last bits may differ: sums of
/// some tens of float32 products.
void check_row(Subject& s, const decode::NextLogits<float>& next, std::size_t i, const Tokens& tokens) {
  CAPTURE(tokens.size());
  const auto row = next.row(i);
  CHECK(distance(std::vector<float>(row.begin(), row.end()), whole(s, tokens)) < 1e-5);
}

Tokens joined(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace

TEST_CASE("session: tokens that are appended in pieces are read as if they had come at once, and each only once") {
  Subject s;
  decode::Session<D, float> session(s.dev, s.decoder);
  const Tokens all = sequence_of(40);
  const Sequence sequence = session.enter();
  Index there = 0;
  for (const Index piece : {Index{1}, Index{6}, Index{1}, Index{17}, Index{15}}) {
    // In two calls, of which the second comes to the queue of the first.
    const auto tokens = std::span(all).subspan(static_cast<std::size_t>(there), static_cast<std::size_t>(piece));
    session.append(sequence, tokens.first(1));
    session.append(sequence, tokens.subspan(1));
    there += piece;
    CHECK(session.length(sequence) == there);
    const auto next = session.step();
    REQUIRE(next.sequences == std::vector<Sequence>{sequence});
    check_row(s, next, 0, Tokens(all.begin(), all.begin() + there));
    CHECK(session.processed() == there);
  }
  CHECK(session.step().sequences.empty());
  CHECK(session.processed() == 40);
}

TEST_CASE("session: with sliding windows steps, pieces and forks see what a whole pass sees") {
  RandomModel shape;
  shape.layers = 3;
  shape.more = {{"use_sliding_window", true}, {"sliding_window", 7}, {"max_window_layers", 1}};
  Subject s(shape);
  decode::Session<D, float> session(s.dev, s.decoder);
  const Tokens all = sequence_of(60), other = sequence_of(60, 4);
  const Sequence sequence = session.enter();
  Index there = 0;
  for (const Index piece : {Index{11}, Index{1}, Index{1}, Index{20}, Index{1}, Index{5}, Index{1}}) {
    session.append(sequence, std::span(all).subspan(static_cast<std::size_t>(there), static_cast<std::size_t>(piece)));
    there += piece;
    check_row(s, session.step(), 0, Tokens(all.begin(), all.begin() + there));
  }
  const Sequence fork = session.fork(sequence, 30);
  session.append(fork, std::span(other).first(1));
  check_row(s, session.step(), 0, joined(Tokens(all.begin(), all.begin() + 30), {other[0]}));
}

TEST_CASE("session: several sequences have their own tokens and lengths, in the order in which they were appended") {
  Subject s;
  decode::Session<D, float> session(s.dev, s.decoder);
  const Sequence a = session.enter(), b = session.enter(4), c = session.enter();
  const Tokens of_a = sequence_of(5, 1), of_b = sequence_of(9, 2), of_c = sequence_of(1, 3), more = sequence_of(7, 4);
  session.append(c, of_c);
  session.append(a, of_a);
  session.append(b, of_b);
  auto next = session.step();
  REQUIRE(next.sequences == std::vector<Sequence>{c, a, b});
  check_row(s, next, 0, of_c);
  check_row(s, next, 1, of_a);
  check_row(s, next, 2, of_b);
  session.append(b, more);
  session.append(c, of_a);
  next = session.step();
  REQUIRE(next.sequences == std::vector<Sequence>{b, c});
  check_row(s, next, 0, joined(of_b, more));
  check_row(s, next, 1, joined(of_c, of_a));
  session.append(a, of_c);
  next = session.step();
  check_row(s, next, 0, joined(of_a, of_c));
}

TEST_CASE("session: sequences that left make room for others, and the rows of those that stay are theirs") {
  Subject s;
  decode::Session<D, float> session(s.dev, s.decoder, 30);
  CHECK(session.rows() == 30);
  std::vector<Tokens> tokens{sequence_of(10, 1), sequence_of(10, 2), sequence_of(10, 3)};
  std::vector<Sequence> sequences;
  for (const Tokens& own : tokens) {
    sequences.push_back(session.enter(10));
    session.append(sequences.back(), own);
  }
  session.step();
  CHECK(session.rows() == 30);
  session.leave(sequences[1]);
  // Two take the place of one, and a third does not fit any more.
  for (const Index room : {Index{4}, Index{6}}) {
    tokens.push_back(sequence_of(room, 5));
    sequences.push_back(session.enter(room));
    session.append(sequences.back(), tokens.back());
  }
  session.step();
  CHECK(session.rows() == 30);
  for (const std::size_t i : {0u, 2u, 3u, 4u}) {
    CAPTURE(i);
    session.append(sequences[i], Tokens{7});  // which needs room that is not beside it, but for one
    tokens[i].push_back(7);
  }
  CHECK(session.rows() > 30);
  auto next = session.step();
  for (const std::size_t i : {0u, 1u, 2u, 3u}) check_row(s, next, i, tokens[std::vector{0u, 2u, 3u, 4u}[i]]);
  for (const std::size_t i : {0u, 2u, 3u, 4u}) session.leave(sequences[i]);
  const Index rows = session.rows();
  session.append(session.enter(rows), sequence_of(3));
  next = session.step();
  check_row(s, next, 0, sequence_of(3));
  CHECK(session.rows() == rows);
}

TEST_CASE("session: a cache that grows under several sequences keeps what is in it") {
  Subject s;
  decode::Session<D, float> session(s.dev, s.decoder);
  std::vector<Tokens> tokens(3);
  std::vector<Sequence> sequences;
  for (std::size_t i = 0; i < 3; ++i) sequences.push_back(session.enter());
  for (Index round = 0; round < 40; ++round) {
    for (std::size_t i = 0; i < 3; ++i) {
      const Tokens more = sequence_of(static_cast<Index>(i) + 1, static_cast<std::int32_t>(round));
      session.append(sequences[i], more);
      tokens[i] = joined(tokens[i], more);
    }
    const auto next = session.step();
    for (std::size_t i = 0; round % 13 == 0 && i < 3; ++i) check_row(s, next, i, tokens[i]);
  }
  const Index length = 40 * (1 + 2 + 3);
  CHECK(session.processed() == length);
  CHECK(session.rows() >= length);
  CHECK(session.rows() <=
        8 * length);  // rooms of up to twice the length, what they leave behind, and the last doubling
}

TEST_CASE("session: a sequence with little free room beside it moves, and leaves its neighbor alone") {
  Subject s;
  decode::Session<D, float> session(s.dev, s.decoder);
  const Sequence a = session.enter(4), gone = session.enter(2), b = session.enter(4);
  Tokens of_a = sequence_of(4, 1), of_b = sequence_of(4, 2);
  session.append(a, of_a);
  session.append(b, of_b);
  session.step();
  session.leave(gone);
  for (const Index count : {Index{2}, Index{1}, Index{1}}) {  // into the gap, and past it
    const Tokens more = sequence_of(count, 3);
    session.append(a, more);
    of_a = joined(of_a, more);
    check_row(s, session.step(), 0, of_a);
  }
  session.append(b, Tokens{9});
  check_row(s, session.step(), 0, joined(of_b, Tokens{9}));
}

TEST_CASE("session: a fork has the first tokens of another, processed or queued, and goes its own way") {
  Subject s;
  decode::Session<D, float> session(s.dev, s.decoder);
  const Tokens first = sequence_of(12, 1), queued = sequence_of(5, 2), more = sequence_of(3, 3);
  const Sequence origin = session.enter();
  session.append(origin, first);
  session.step();
  session.append(origin, queued);
  for (const Index length : {Index{0}, Index{7}, Index{12}, Index{14}, Index{17}}) {
    CAPTURE(length);
    const Index before = session.processed();
    const Sequence fork = session.fork(origin, length);
    CHECK(session.length(fork) == length);
    session.append(fork, more);
    const auto next = session.step();
    const Tokens all = joined(first, queued);
    check_row(s, next, next.sequences.size() - 1, joined(Tokens(all.begin(), all.begin() + length), more));
    if (length == 0) check_row(s, next, 0, all);  // the queue of the origin was processed with it
    CHECK(session.processed() - before == (length == 0 ? 5 + 3 : std::max<Index>(0, length - 17) + 3));
    session.leave(fork);
  }
  const Sequence late = session.enter();
  session.append(late, first);
  const Sequence copy = session.fork(late, 4);  // of what is queued alone
  const auto next = session.step();
  REQUIRE(next.sequences == std::vector<Sequence>{late, copy});
  check_row(s, next, 0, first);
  check_row(s, next, 1, Tokens(first.begin(), first.begin() + 4));

  decode::Session<D, float> other(s.dev, s.decoder);
  const Sequence twelve = other.enter(12);
  other.append(twelve, first);
  CHECK(other.rows() == 12);
  (void)other.fork(twelve, 4, 20);
  CHECK(other.rows() == 12 + 20);  // at once
}

TEST_CASE("session: what is cut off is forgotten, processed or queued") {
  Subject s;
  decode::Session<D, float> session(s.dev, s.decoder);
  const Tokens first = sequence_of(12, 1), more = sequence_of(5, 2);
  const Sequence sequence = session.enter();
  session.append(sequence, first);
  session.step();
  session.append(sequence, more);
  session.truncate(sequence, 14);
  const Tokens shorter = joined(first, Tokens(more.begin(), more.begin() + 2));
  auto next = session.step();
  check_row(s, next, 0, shorter);
  CHECK(session.processed() == 14);
  session.append(sequence, more);
  session.truncate(sequence, 7);
  CHECK(session.length(sequence) == 7);
  CHECK(session.step().sequences.empty());
  session.append(sequence, more);
  next = session.step();
  check_row(s, next, 0, joined(Tokens(first.begin(), first.begin() + 7), more));
  CHECK(session.processed() == 19);
  session.append(sequence, more);
  session.leave(sequence);
  CHECK(session.step().sequences.empty());
}

TEST_CASE("session: a step's numbers are the same whatever else is queued, and results come in the order of queues") {
  Subject s;
  const Tokens prompt = sequence_of(9), other = sequence_of(30, 2), token{5};
  const auto step_of = [&](bool beside) {
    decode::Session<D, float> session(s.dev, s.decoder);
    const Sequence a = session.enter(), b = session.enter(), c = session.enter();
    for (const Sequence sequence : {a, c}) session.append(sequence, prompt);
    session.step();
    if (beside) session.append(b, other);
    session.append(a, token);
    if (beside) session.append(c, joined(token, token));
    const auto next = session.step();
    if (beside) {
      REQUIRE(next.sequences == std::vector<Sequence>{b, a, c});
      check_row(s, next, 0, other);
      check_row(s, next, 2, joined(prompt, joined(token, token)));
    }
    const auto row = next.row(beside ? 1 : 0);
    return std::vector<float>(row.begin(), row.end());
  };
  const auto alone = step_of(false);
  CHECK(distance(alone, whole(s, joined(prompt, token))) < 1e-5);
  CHECK(step_of(true) == alone);
}

TEST_CASE("session: a step has the biases, the adapter and the residual sums of a whole pass, in each precision") {
  const TempFolder folder;
  write_random_model(folder.path(), {.family = "qwen2"});  // q, k and v have biases
  const auto source = model::Source::open(folder.path());
  const Tokens prompt = sequence_of(9), token{5};
  const auto check = [&]<class T>(T, double bound) {
    D dev(2);
    model::Decoder<D, T> decoder(dev, source);
    decoder.attach(dev, {.rank_pattern = {{"k_proj", 3}}, .alpha_pattern = {{"v_proj", 24}, {"up_proj", 8}}});
    fill_adapter(dev, decoder, 0.5);
    decode::Session<D, T> session(dev, decoder);
    const Sequence sequence = session.enter();
    session.append(sequence, prompt);
    session.step();
    session.append(sequence, token);
    const Tokens all = joined(prompt, token);
    const auto expected = logits_of(dev, decoder, all, {static_cast<std::int32_t>(all.size()) - 1});
    CHECK(distance(session.step().values, expected) < bound);
  };
  check(0.0f, 1e-5);
  // A rounding for each of some twenty sums on the way through two layers, in either of the two passes.
  check(bf16(), 40 * 0x1p-9);
  check(f16(), 40 * 0x1p-12);
}

TEST_CASE("session: weights in blocks are multiplied by steps rounded to 8 bits, and by prompts that are not") {
  const RandomModel shape{.hidden = 256, .ffn = 512, .heads = 4, .kv_heads = 2, .head_dim = 64, .tied = true};
  const Tokens prompt = sequence_of(20), token{5};
  for (const DType dtype : {DType::q8_0, DType::q4_k}) {
    CAPTURE(name_of(dtype));
    const TempFolder folder;
    write_gguf(folder / "m.gguf", shape, random_tensors(shape), dtype);
    D dev(2);
    const auto source = model::Source::open(folder / "m.gguf");
    model::Decoder<D, float> decoder(dev, source);
    decode::Session<D, float> session(dev, decoder);
    const Sequence sequence = session.enter();
    const auto last = [&](const Tokens& tokens) {
      return logits_of(dev, decoder, tokens, {static_cast<std::int32_t>(tokens.size()) - 1});
    };
    session.append(sequence, prompt);
    CHECK(distance(session.step().values, last(prompt)) < 1e-5);
    session.append(sequence, token);
    // Half a step of a value's largest neighbor is 1/254 of it, uniform, and random from value to value: a product is
    // off by up to 3 / 254 / sqrt(12) of itself, where the largest is three times the usual, and two layers have seven
    // each.
    const double off = distance(session.step().values, last(joined(prompt, token)));
    CHECK(off < 14 * 3.0 / 254 / std::sqrt(12));
    CHECK(off > 1e-4);
  }
}

TEST_CASE("session: long prompts go through in passes of bounded rows, and short ones share a pass") {
  constexpr Index most = decode::Session<D, float>::pass_rows;
  Subject s;
  decode::Session<D, float> session(s.dev, s.decoder);
  const Index more = test::effort<Index>(most, 0, "session: prompts of three passes");
  const Tokens lengthy = sequence_of(most + more + 100, 1), brief = sequence_of(20, 2);
  const Sequence a = session.enter(), b = session.enter(), c = session.enter();
  session.append(a, brief);
  session.append(b, lengthy);
  session.append(c, brief);
  const auto next = session.step();
  REQUIRE(next.sequences == std::vector<Sequence>{a, b, c});
  check_row(s, next, 0, brief);
  check_row(s, next, 1, lengthy);
  check_row(s, next, 2, brief);
  CHECK(session.processed() == most + more + 140);
}

TEST_CASE("session: what code asks for is checked, and changes nothing") {
  Subject s;
  decode::Session<D, float> session(s.dev, s.decoder);
  const Sequence sequence = session.enter(), gone = session.enter();
  session.leave(gone);
  const Tokens some{3, 4};
  session.append(sequence, some);
  const auto told = [&](auto&& call) { return message_of<Error>(call); };
  const std::string left = "[session] sequence 1: not in the session, or it has left";
  CHECK(told([&] { session.append(gone, some); }) == left);
  CHECK(told([&] { session.leave(gone); }) == left);
  CHECK(told([&] { session.fork(gone, 0); }) == left);
  CHECK(told([&] { session.truncate(gone, 0); }) == left);
  CHECK(told([&] { (void)session.length(gone); }) == left);
  for (const Index length : {Index{-1}, Index{3}}) {
    const std::string wrong = concat("[session] sequence 0: a length of ", length, " was asked for, of 2 tokens");
    CHECK(told([&] { session.fork(sequence, length); }) == wrong);
    CHECK(told([&] { session.truncate(sequence, length); }) == wrong);
  }
  CHECK(told([&] {
          session.append(sequence, Tokens{3, 61});
        }) == "sequence 0: the id 61 at position 1 is not in the model's vocabulary of 61");
  CHECK(told([&] { session.enter(-1); }) == "[session] room: given -1, allowed: 0 or more tokens");
  constexpr Index most = std::numeric_limits<std::int32_t>::max();
  for (const Index rows : {Index{-1}, most + 1})
    CHECK(told([&] { decode::Session<D, float>(s.dev, s.decoder, rows); }) ==
          concat("[session] rows: given ", rows, ", allowed: 0 to 2147483647, which a cache holds"));
  CHECK(told([&] { session.enter(most); }) ==
        "[session] 2147483647 more tokens behind 2 do not fit; a cache holds 2147483647 rows");
  CHECK(session.length(sequence) == 2);
  session.append(sequence, Tokens{});
  const auto next = session.step();
  REQUIRE(next.sequences == std::vector<Sequence>{sequence});
  check_row(s, next, 0, some);
}

TEST_CASE(
    "session: room is found where it is, in the first gap that is large enough, and grows to twice what was there") {
  Subject s;
  decode::Session<D, float> session(s.dev, s.decoder, 12);
  const Sequence a = session.enter(4), b = session.enter(4), c = session.enter(4);
  CHECK(session.rows() == 12);
  session.leave(b);
  const Sequence exact = session.enter(4);  // the gap, exactly
  CHECK(session.rows() == 12);
  session.enter(0);
  CHECK(session.rows() == 12);
  session.enter(1);
  CHECK(session.rows() == 24);
  session.enter(40);
  CHECK(session.rows() == 13 + 40);
  const Tokens four = sequence_of(4, 1);
  for (const Sequence sequence : {a, exact, c}) session.append(sequence, four);
  CHECK(session.rows() == 53);
  const auto next = session.step();
  REQUIRE(next.sequences == std::vector<Sequence>{a, exact, c});
  for (std::size_t i = 0; i < 3; ++i) check_row(s, next, i, four);
  CHECK(next.vocabulary == 61);
  CHECK(next.values.size() == 3 * 61);
  // Of a sequence that is the last, more room is where it is.
  decode::Session<D, float> one(s.dev, s.decoder, 10);
  const Sequence only = one.enter(3);
  one.append(only, sequence_of(3));
  one.append(only, Tokens{5});  // twice its room
  CHECK(one.rows() == 10);
  one.append(only, sequence_of(6));
  CHECK(one.rows() == 20);
  check_row(s, one.step(), 0, joined(joined(sequence_of(3), Tokens{5}), sequence_of(6)));
}

TEST_CASE("session: a queue that a truncation leaves whole or empty, and tokens of no number") {
  Subject s;
  decode::Session<D, float> session(s.dev, s.decoder);
  const Sequence a = session.enter(), b = session.enter();
  session.append(a, sequence_of(4, 1));
  session.append(b, sequence_of(4, 2));
  session.truncate(a, 4);  // all of it
  session.truncate(b, 0);
  CHECK(session.length(b) == 0);
  auto next = session.step();
  REQUIRE(next.sequences == std::vector<Sequence>{a});
  check_row(s, next, 0, sequence_of(4, 1));
  session.append(a, Tokens{});
  CHECK(session.step().sequences.empty());
  CHECK(session.processed() == 4);
  const Sequence fork = session.fork(a, 4);
  CHECK(session.step().sequences.empty());  // its logits come with what is appended
  session.append(fork, Tokens{9});
  next = session.step();
  check_row(s, next, 0, joined(sequence_of(4, 1), Tokens{9}));
  CHECK(session.processed() == 5);
}

}  // namespace session_test
