// Decoding with a cache against whole forward passes, and what ends a sequence.

#include "lora/decode/generate.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "lora/instantiate.hpp"
#include "support/decoding.hpp"
#include "support/message_of.hpp"
#include "support/random_model.hpp"
#include "support/temp_folder.hpp"

namespace generate_test {

namespace {

using namespace lora;
using namespace lora::test;
using D = cpu::Device;
using Tokens = std::vector<std::int32_t>;

struct Subject {
  TempFolder folder;
  D dev{1};
  model::Source source;
  model::Decoder<D, float> decoder;
  const std::vector<Tokens> prompts{{3, 7, 12, 5}, {9}, {20, 21, 22, 23, 24, 25, 26}};

  Subject() : source(open(folder)), decoder(dev, source) {}
  static model::Source open(const TempFolder& folder) {
    write_random_model(folder.path(), {});
    return model::Source::open(folder.path());
  }
  std::vector<Tokens> run(const decode::GenerateOptions& options, std::size_t batch = 16,
                          const decode::OnToken& on_token = {}) {
    return decode::generate(dev, decoder, std::span<const Tokens>(prompts), options, batch, on_token);
  }
  std::vector<Tokens> run_all(std::span<const Tokens> some, const decode::GenerateOptions& options) {
    return decode::generate(dev, decoder, some, options);
  }
  std::vector<float> last_logits(const Tokens& tokens) {
    return logits_of(dev, decoder, tokens, {static_cast<std::int32_t>(tokens.size()) - 1});
  }
};

}  // namespace

TEST_CASE("generate: greedy tokens with a cache are those of whole forward passes, together or singly") {
  Subject s;
  decode::GenerateOptions options;
  options.max_new_tokens = 10;
  const auto results = s.run(options);
  CHECK(results == s.run(options, 1));
  for (std::size_t i = 0; i < results.size(); ++i) {
    REQUIRE(results[i].size() == 10);
    Tokens tokens = s.prompts[i];
    for (const auto token : results[i]) {
      const auto logits = s.last_logits(tokens);
      CHECK(token == std::max_element(logits.begin(), logits.end()) - logits.begin());
      tokens.push_back(token);
    }
  }
}

TEST_CASE("generate: the next prompt enters where one has ended, each result is told as it ends, and a stop ends all") {
  Subject s;
  decode::GenerateOptions options;
  options.max_new_tokens = 6;
  std::vector<Tokens> prompts;
  for (std::int32_t i = 0; i < 7; ++i) prompts.push_back({3 + i, 7, 2 * i});
  const std::span<const Tokens> given(prompts);
  const auto alone = decode::generate(s.dev, s.decoder, given, options, 1);
  // The i-th may have i % 3 + 1 tokens, so that they end at different times.
  std::vector<std::size_t> ended;
  std::vector<Index> counts(prompts.size());
  const auto some = decode::generate(
      s.dev, s.decoder, given, options, 3,
      [&](std::size_t i, std::int32_t) { return ++counts[i] < static_cast<Index>(i % 3) + 1; },
      [&](std::size_t i, const Tokens& tokens) {
        ended.push_back(i);
        CHECK(tokens == Tokens(alone[i].begin(), alone[i].begin() + static_cast<Index>(i % 3) + 1));
      });
  // Of 0 1 2, 0 ends with the first step, of 1 2 3 then 1 and 3, of 2 4 5 then 2, of 4 5 6 then 4 and 6, at last 5.
  CHECK(ended == std::vector<std::size_t>{0, 1, 3, 2, 4, 6, 5});
  for (std::size_t i = 0; i < prompts.size(); ++i) CHECK(std::ssize(some[i]) == static_cast<Index>(i % 3) + 1);

  Index told = 0;
  options.stopped = [&] { return told >= 6; };
  const auto stopped = decode::generate(
      s.dev, s.decoder, given, options, 3,
      [&](std::size_t, std::int32_t) {
        ++told;
        return true;
      },
      [&](std::size_t, const Tokens&) { FAIL("none of them ended"); });
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    CAPTURE(i);
    CHECK(stopped[i] == Tokens(alone[i].begin(), alone[i].begin() + (i < 3 ? 2 : 0)));
  }
  options = {};
  options.max_new_tokens = 0;
  ended.clear();
  decode::generate(s.dev, s.decoder, given.first(2), options, 3, {}, [&](std::size_t i, const Tokens& tokens) {
    ended.push_back(i);
    CHECK(tokens.empty());
  });
  CHECK(ended == std::vector<std::size_t>{0, 1});
}

TEST_CASE("generate: what prompts have in common at their beginning is processed once") {
  Subject s;
  decode::GenerateOptions options;
  options.max_new_tokens = 3;
  options.sampling.repetition_penalty = 1.3;
  // With `common` tokens in common, and `own` more.
  const auto prompts_of = [](Index count, Index common, Index own) {
    std::vector<Tokens> prompts;
    for (Index i = 0; i < count; ++i) {
      Tokens& prompt = prompts.emplace_back();
      for (Index j = 0; j < common; ++j) prompt.push_back(static_cast<std::int32_t>(j * j % 31));
      for (Index j = 0; j < own; ++j) prompt.push_back(static_cast<std::int32_t>((5 + 3 * i + j) % 31));
    }
    return prompts;
  };
  const auto processed = [&](const std::vector<Tokens>& prompts, std::size_t slots, Index answers = 1) {
    options.num_return_sequences = answers;
    const decode::OnToken on_token;
    const decode::OnEnd on_end;
    decode::detail::Generation<D, float> all(s.dev, s.decoder, prompts, slots, options, on_token, on_end);
    const auto results = all.run();
    options.num_return_sequences = 1;
    for (std::size_t i = 0; i < results.size(); ++i) {
      CHECK(results[i] == s.run_all(std::span(prompts).subspan(i / static_cast<std::size_t>(answers), 1), options)[0]);
      CHECK(results[i].size() == 3);
    }
    return all.processed();
  };
  constexpr Index answered = 2;  // tokens of each answer that go through the model as well: all but the last
  // The first is waited for where that saves as much as a step takes.
  CHECK(processed(prompts_of(5, 140, 4), 5) == 140 + 5 * (4 + answered));
  CHECK(processed(prompts_of(5, 127, 4), 5) == 5 * (127 + 4 + answered));
  CHECK(processed(prompts_of(5, 128, 4), 2) == 128 + 5 * (4 + answered));
  // Who enters later goes on from who is there, where that is worth a copy.
  for (const auto& [common, shares] : {std::pair<Index, bool>{15, true}, {16, true}, {16, false}}) {
    options.shares = shares;
    const std::vector<Tokens> prompts = prompts_of(3, common, 4);
    const decode::OnToken first_ends = [](std::size_t i, std::int32_t) { return i != 0; };
    const decode::OnEnd on_end;
    options.num_return_sequences = 1;
    decode::detail::Generation<D, float> later(s.dev, s.decoder, prompts, 2, options, first_ends, on_end);
    const auto results = later.run();
    CHECK(results[2] == s.run_all(std::span(prompts).subspan(2), options)[0]);
    CHECK(later.processed() == 3 * (common + 4) + 2 * answered - (shares && common == 16 ? 16 : 0));
  }
  options.shares = true;
  // All of a prompt but its last token.
  CHECK(processed(prompts_of(1, 150, 0), 4, 4) == 149 + 4 * (1 + answered));
  // Others don't wait behind one that does.
  std::vector<Tokens> mixed = prompts_of(4, 150, 4);
  mixed.insert(mixed.begin() + 2, prompts_of(1, 0, 9)[0]);
  CHECK(processed(mixed, 5) == 150 + 4 * (4 + answered) + 9 + answered);
  CHECK(processed(mixed, 3) == 150 + 4 * (4 + answered) + 9 + answered);
  std::vector<std::size_t> order;
  (void)decode::generate(s.dev, s.decoder, std::span<const Tokens>(mixed), options, 5,
                         [&](std::size_t i, std::int32_t) {
                           order.push_back(i);
                           return true;
                         });
  CHECK(order == std::vector<std::size_t>{0, 2, 0, 2, 1, 3, 4, 0, 2, 1, 3, 4, 1, 3, 4});
  options.shares = false;
  CHECK(processed(prompts_of(3, 150, 4), 3) == 3 * (154 + answered));
  options.shares = true;
  // A prompt that another begins with.
  std::vector<Tokens> nested = prompts_of(3, 200, 4);
  nested[1].resize(160);
  CHECK(processed(nested, 3) == 204 + 1 + 4 + 3 * answered);
}

TEST_CASE("generate: answers to a prompt have random numbers of their own, the same alone and together") {
  Subject s;
  decode::GenerateOptions options;
  options.max_new_tokens = 12;
  options.sampling.temperature = 2;
  const auto one = s.run(options);
  options.num_return_sequences = 3;
  std::vector<std::size_t> told;
  const auto three = s.run(options, 16, [&](std::size_t i, std::int32_t) {
    told.push_back(i);
    return true;
  });
  REQUIRE(three.size() == 9);
  CHECK(three == s.run(options, 1));
  CHECK(three == s.run(options, 4));
  for (std::size_t i = 0; i < 9; ++i) {
    CHECK(std::count(told.begin(), told.end(), i) == 12);
    for (std::size_t j = 0; j < i; ++j) CHECK(three[i] != three[j]);
  }
  for (std::size_t i = 0; i < 3; ++i) CHECK(three[3 * i] == one[i]);
  options.max_new_tokens = 0;
  CHECK(s.run(options).size() == 9);
  options.num_return_sequences = 0;
  CHECK_THROWS_WITH_AS(s.run(options), "[generate] num_return_sequences: given 0, allowed: 1 or more", ConfigError);
}

TEST_CASE("generate: a repetition penalty is for the tokens of the prompt and of the answer") {
  Subject s;
  decode::GenerateOptions options;
  options.max_new_tokens = 10;
  options.sampling.repetition_penalty = 1e6;  // what was there never comes again while another has a positive logit
  const auto results = s.run(options);
  for (std::size_t i = 0; i < results.size(); ++i) {
    Tokens tokens = s.prompts[i];
    for (const auto token : results[i]) {
      auto logits = s.last_logits(tokens);
      for (const auto id : std::set<std::int32_t>(tokens.begin(), tokens.end())) {
        float& logit = logits[static_cast<std::size_t>(id)];
        logit = logit < 0 ? logit * 1e6f : logit / 1e6f;
      }
      CHECK(token == std::max_element(logits.begin(), logits.end()) - logits.begin());
      CHECK(std::find(tokens.begin(), tokens.end(), token) == tokens.end());
      tokens.push_back(token);
    }
  }
}

TEST_CASE("generate: positions past 256 and 512 are those of whole forward passes") {
  Subject s;
  Tokens prompt;
  for (std::int32_t i = 0; i < 251; ++i) prompt.push_back(i * i % 61);
  const std::vector<Tokens> prompts{prompt};
  decode::GenerateOptions options;
  options.max_new_tokens = 270;
  const auto results = decode::generate(s.dev, s.decoder, std::span<const Tokens>(prompts), options);
  Tokens tokens = prompt;
  tokens.insert(tokens.end(), results[0].begin(), results[0].end());
  REQUIRE(tokens.size() == 251 + 270);
  // One pass over all of them, which reads no table that has grown on the way.
  Subject fresh;
  const auto logits = logits_of(fresh.dev, fresh.decoder, tokens);
  const std::size_t width = logits.size() / tokens.size();
  for (std::size_t i = prompt.size(); i < tokens.size(); ++i) {
    CAPTURE(i);
    const float* const row = logits.data() + (i - 1) * width;
    CHECK(tokens[i] == std::max_element(row, row + width) - row);
  }
}

TEST_CASE("generate: stop ids, on_token and the vocabulary's limit") {
  Subject s;
  decode::GenerateOptions options;
  options.max_new_tokens = 6;
  const auto free = s.run(options);
  const auto ended = s.run(options, 16, [](std::size_t, std::int32_t) { return false; });
  for (std::size_t i = 0; i < free.size(); ++i) CHECK(ended[i] == Tokens{free[i][0]});
  // Each is told by its number among all, also where another batch has gone before.
  auto singly = free;
  for (auto& tokens : singly) tokens.clear();
  s.run(options, 1, [&](std::size_t sequence, std::int32_t token) {
    singly.at(sequence).push_back(token);
    return true;
  });
  CHECK(singly == free);
  options.stop_ids = {free[0][2]};
  const auto stopped = s.run(options);
  const auto at = std::find(free[0].begin(), free[0].end(), free[0][2]);
  CHECK(stopped[0] == Tokens(free[0].begin(), at));
  options.stop_ids.clear();
  options.vocabulary = 5;
  for (const auto& result : s.run(options))
    for (const auto token : result) CHECK(token < 5);
  options.max_new_tokens = 0;
  CHECK(s.run(options) == std::vector<Tokens>(3));
  options.max_new_tokens = 1;
  const std::vector<Tokens> empty(1);
  CHECK(holds(
      message_of<ConfigError>([&] { decode::generate(s.dev, s.decoder, std::span<const Tokens>(empty), options); }),
      "without any token"));
}

TEST_CASE("generate: an answer ends at the longest sequence that the model computes, and a longer prompt is refused") {
  const TempFolder folder;
  D dev(1);
  write_random_model(folder.path(), longrope_model(9));
  model::Decoder<D, float> decoder(dev, model::Source::open(folder.path()));
  decode::GenerateOptions options;
  options.max_new_tokens = 20;
  std::vector<Tokens> prompts = {{3, 7, 12, 5}, {20, 21, 22, 23, 24, 25, 26, 27}, {1, 2, 3, 4, 5, 6, 7, 8, 9}};
  const auto sizes = [&] {
    std::vector<std::size_t> found;
    for (const Tokens& tokens : decode::generate(dev, decoder, std::span<const Tokens>(prompts), options))
      found.push_back(tokens.size());
    return found;
  };
  CHECK(sizes() == std::vector<std::size_t>{5, 1, 0});
  options.max_new_tokens = 3;
  CHECK(sizes() == std::vector<std::size_t>{3, 1, 0});
  prompts.back().push_back(10);
  CHECK(message_of<ConfigError>(sizes).starts_with("[rotary] a sequence of 10 tokens; beyond 9 "));
}

TEST_CASE("generate: what code asks for is checked before anything is computed") {
  Subject s;
  decode::GenerateOptions options;
  options.max_new_tokens = 1;
  const auto told = [&](const std::vector<Tokens>& prompts, std::size_t batch = 16) {
    return message_of<Error>(
        [&] { decode::generate(s.dev, s.decoder, std::span<const Tokens>(prompts), options, batch); });
  };
  CHECK(told({{3}, {7, 61}}) == "prompt 1: the id 61 at position 1 is not in the model's vocabulary of 61");
  CHECK(told({{900000000}}) == "prompt 0: the id 900000000 at position 0 is not in the model's vocabulary of 61");
  CHECK(told({{3, -1}}) == "prompt 0: the id -1 at position 1 is not in the model's vocabulary of 61");
  CHECK(told({{3}}, 0) == "[generate] batch: given 0, allowed: at least 1 prompt at a time");
  constexpr Index most = std::numeric_limits<std::int32_t>::max();
  for (const Index count : {most, most / 2, std::numeric_limits<Index>::max()}) {
    options.max_new_tokens = count;
    CHECK(told({{3}, {5, 7}}) == concat("[generate] 2 prompts of up to 2 tokens with ", count,
                                        " new ones each are more ",
                                        "than a cache holds, 2147483647 rows; continue fewer at a time, or with a ",
                                        "smaller max_new_tokens"));
  }
  CHECK(holds(message_of<FormatError>([&] {
                s.last_logits({3, 61});
              }),
              "token 61 at position 1 is not in the model's vocabulary of 61"));
  CHECK(holds(message_of<ShapeError>([&] {
                logits_of(s.dev, s.decoder, Tokens{3, 4}, {1, 2});
              }),
              "[decoder] row 2 was chosen, number 1, of a pass of 2 rows"));
}

TEST_CASE("generate: logits that are no finite numbers are an error with the prompt and its token") {
  Subject s;
  s.decoder.attach(s.dev, model::AdapterConfig{});
  fill_adapter(s.dev, s.decoder, std::numeric_limits<double>::infinity());
  CHECK(message_of<NonFiniteError>([&] { s.run({}); }) ==
        "the logits of token 4 of prompt 0 are not all finite numbers");
  // One alone is enough, wherever it stands.
  const std::vector<float> numbers(5, std::numeric_limits<float>::max());
  CHECK(decode::detail::all_finite(std::span(numbers)));
  for (const float odd : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()})
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      auto some = numbers;
      some[i] = odd;
      CHECK_FALSE(decode::detail::all_finite(std::span<const float>(some)));
    }
}

TEST_CASE("generate: the random numbers of an answer are those of its prompt and its place, in every version") {
  using decode::detail::stream_of;
  CHECK(stream_of(3, 0) == 3);
  CHECK(stream_of(0, 2) == mix_key(0, std::size_t{2}));
  CHECK(stream_of(3, 2) == mix_key(3, std::size_t{2}));
}

TEST_CASE("generate: rows of a pass are checked against its cache, and positions are none below 0") {
  Subject s;
  const Tokens tokens{3, 4}, positions{0, 1}, wrong{0, -1};
  const std::vector<kernel::Segment> segments{{0, 2}};
  nn::KvCache<D, float> cache(s.dev, 2, 8, 4);
  const auto told = [&](const Tokens& cache_rows) {
    return message_of<ShapeError>([&] {
      const nn::Pass<D, float> pass(s.dev, nn::Batch{tokens, positions, {}, segments, {}, cache_rows}, cache, {{0, 2}});
    });
  };
  CHECK(told({0, 8}) == "[pass] row 1 goes to row 8 of a cache of 8");
  CHECK(told({-1, 1}) == "[pass] row 0 goes to row -1 of a cache of 8");
  CHECK(told({}) == "[pass] 0 cache rows for 2 tokens");
  CHECK(message_of<ShapeError>([&] {
          const nn::Pass<D, float> pass(s.dev, nn::Batch{tokens, wrong, {}, segments});
        }) == "[pass] row 1 has the position -1");
}

TEST_CASE("generate: what a sequence draws does not depend on how many are decoded together, nor is it another's") {
  Subject s;
  const std::vector<Tokens> alike(5, s.prompts[0]);
  decode::GenerateOptions options;
  options.max_new_tokens = 12;
  options.sampling.temperature = 2;
  const auto run = [&](std::size_t batch) {
    return decode::generate(s.dev, s.decoder, std::span<const Tokens>(alike), options, batch);
  };
  const auto together = run(16);
  CHECK(run(1) == together);
  CHECK(run(2) == together);
  for (std::size_t i = 0; i < together.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) CHECK(together[i] != together[j]);
  options.sampling.seed = 43;
  CHECK(run(16) != together);
}

TEST_CASE("generate: what is not set, and limits at their ends") {
  const decode::GenerateOptions plain;
  CHECK((plain.max_new_tokens == 256 && plain.vocabulary == 0 && plain.stop_ids.empty() && !plain.stopped));
  CHECK(plain.num_return_sequences == 1);
  Subject s;
  decode::GenerateOptions options;
  options.max_new_tokens = 3;
  const auto expected = s.run(options);
  for (const Index vocabulary : {Index{61}, Index{1000}, Index{-1}}) {  // no narrower than the head
    options.vocabulary = vocabulary;
    CHECK(s.run(options) == expected);
  }
  options.vocabulary = 1;
  for (const auto& result : s.run(options)) CHECK(result == Tokens{0, 0, 0});
  options = {};
  options.max_new_tokens = -1;
  CHECK(s.run(options) == std::vector<Tokens>(3));
  options.max_new_tokens = 1;
  Index told = 0;
  s.run(options, 16, [&](std::size_t, std::int32_t) {
    ++told;
    return true;
  });
  CHECK(told == 3);
  CHECK(decode::generate(s.dev, s.decoder, std::span<const Tokens>(), options).empty());
  options.stopped = [] { return true; };  // before anything has begun
  CHECK(s.run(options) == std::vector<Tokens>(3));
  const std::vector<Tokens> some{{3}, {}};
  CHECK(message_of<ConfigError>([&] { decode::generate(s.dev, s.decoder, std::span<const Tokens>(some), options); }) ==
        "a prompt without any token can't be continued");
  // A stop id ends a sequence before its token is told, and is told as its end.
  options = {};
  options.max_new_tokens = 3;
  options.stop_ids = {60, expected[1][0]};
  std::vector<std::size_t> ends;
  const std::span<const Tokens> second = std::span<const Tokens>(s.prompts).subspan(1, 1);
  const auto results = decode::generate(
      s.dev, s.decoder, second, options, 16,
      [](std::size_t, std::int32_t) {
        FAIL("no token was to be told");
        return true;
      },
      [&](std::size_t i, const Tokens& tokens) {
        ends.push_back(i);
        CHECK(tokens.empty());
      });
  CHECK(ends == std::vector<std::size_t>{0});
  CHECK(results == std::vector<Tokens>(1));
}

}  // namespace generate_test
