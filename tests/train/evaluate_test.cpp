#include "lora/train/evaluate.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "lora/cpu/kernels.hpp"
#include "lora/io/formats/json.hpp"
#include "lora/model/decoder/adapter.hpp"
#include "lora/model/weights/weights.hpp"
#include "support/thread_ranks.hpp"

namespace evaluate_test {

using namespace lora;
using namespace lora::train;

namespace {

/// A record whose tokens are their places, all labeled but those of the prompt.
data::Example record(Index length, Index prompt) {
  data::Example example;
  example.record = 41;
  for (Index i = 0; i < length; ++i) {
    example.tokens.push_back(static_cast<std::int32_t>(i));
    example.labels.push_back(i < prompt ? ignore_index : static_cast<std::int32_t>(i));
  }
  return example;
}

}  // namespace

TEST_CASE("evaluate: windows score each label once, with half a window before it") {
  for (const Index length : {1, 7, 8, 9, 12, 13, 64, 65}) {
    for (const Index window : {2, 3, 8}) {
      CAPTURE(length);
      CAPTURE(window);
      const auto example = record(length, 2);
      std::vector<int> scored(static_cast<std::size_t>(length), 0);
      for (const auto& part : windows_of(example, window)) {
        REQUIRE(part.tokens.size() == part.labels.size());
        CHECK(part.record == 41);
        CHECK(static_cast<Index>(part.tokens.size()) <= window);
        for (std::size_t i = 1; i < part.labels.size(); ++i) {
          if (part.labels[i] == ignore_index) continue;
          CHECK(part.labels[i] == part.tokens[i]);
          const auto place = static_cast<std::size_t>(part.labels[i]);
          ++scored[place];
          CHECK((i >= static_cast<std::size_t>(window / 2) || i == place));
        }
      }
      for (std::size_t i = 0; i < scored.size(); ++i) CHECK(scored[i] == (i < 2 ? 0 : 1));
    }
  }
}

TEST_CASE("evaluate: a record that fits is left as it is") {
  const auto windows = windows_of(record(8, 3), 8);
  REQUIRE(windows.size() == 1);
  CHECK(windows[0].labels == record(8, 3).labels);
}

TEST_CASE("evaluate: after each batch the sums so far are told, and without a labeled token it is an error") {
  const auto source = model::Source::open(std::filesystem::path(LORA_FIXTURES) / "golden" / "qwen3");
  cpu::Device dev(1);
  model::Decoder<cpu::Device, float> decoder(dev, source);
  const std::vector<data::Example> examples = {record(5, 1), record(9, 1), record(3, 1)};  // the second in two windows
  std::string told;
  const auto see = [&](const model::Evaluation& sums) {
    told += concat(sums.records, " records, ", sums.tokens, " tokens, ", sums.labeled, " labeled\n");
  };
  std::vector<RecordLoss> each(7);  // of an evaluation before
  const auto totals = evaluate(dev, decoder, 3, [&](Index i) { return examples[static_cast<std::size_t>(i)]; },
                               {.batch = 2, .window = 8, .see = see, .each = &each});
  CHECK(told == "2 records, 14 tokens, 11 labeled\n3 records, 17 tokens, 14 labeled\n");
  CHECK((totals.records == 3 && totals.tokens == 17 && totals.labeled == 14));
  REQUIRE(each.size() == 3);
  CHECK((each[0].labeled == 4 && each[1].labeled == 8 && each[2].labeled == 2));
  const std::string nothing = [&]() -> std::string {
    try {
      evaluate(dev, decoder, 2, [](Index) { return record(5, 5); }, {});
    } catch (const FormatError& error) {
      return error.what();
    }
    return "";
  }();
  CHECK(nothing == "nothing to evaluate: none of 2 records has a labeled token");
}

TEST_CASE("evaluate: what records of a batch have in common is computed once, with the same losses for each") {
  cpu::Device dev(1);
  const auto source = model::Source::open(std::filesystem::path(LORA_FIXTURES) / "golden" / "qwen3");
  model::Decoder<cpu::Device, float> decoder(dev, source);
  std::vector<data::Example> examples;
  for (const Index length : {40, 25, 60, 18, 44, 52}) {
    examples.push_back(record(length, 20));
    examples.back().tokens.back() = static_cast<std::int32_t>(examples.size());
    examples.back().labels.back() = examples.back().tokens.back();
  }
  examples[1].tokens[3] = 9;  // begins otherwise
  for (const Index window : {100, 30})
    for (const Index batch : {1, 4}) {
      CAPTURE(window);
      CAPTURE(batch);
      std::vector<RecordLoss> apart, shared;
      const auto losses_of = [&](bool shares, std::vector<RecordLoss>& each) {
        return evaluate(dev, decoder, std::ssize(examples),
                        [&](Index i) { return examples[static_cast<std::size_t>(i)]; },
                        {.batch = batch, .window = window, .shares = shares, .each = &each});
      };
      const auto one = losses_of(false, apart), other = losses_of(true, shared);
      CHECK((one.labeled == other.labeled && one.tokens == other.tokens && one.records == other.records));
      CHECK(other.loss_sum == doctest::Approx(one.loss_sum).epsilon(1e-5));
      for (std::size_t i = 0; i < examples.size(); ++i) {
        CHECK(shared[i].labeled == apart[i].labeled);
        CHECK(shared[i].loss_sum == doctest::Approx(apart[i].loss_sum).epsilon(1e-5));
      }
      if (batch == 1) CHECK(other.loss_sum == one.loss_sum);
      // Three of the first four have 16 rows in common, those before the shortest's label; the last two have 19.
      if (window == 100 && batch == 1) CHECK(other.computed_tokens == one.computed_tokens);
      if (window == 100 && batch == 4) CHECK(other.computed_tokens == one.computed_tokens - 2 * 16 - 19);
      if (window == 100) CHECK(one.computed_tokens == one.tokens);
    }
}

TEST_CASE("evaluate: perplexity is the exponential of the mean loss") {
  model::Evaluation totals;
  totals.loss_sum = 3;
  totals.labeled = 2;
  totals.correct = 1;
  CHECK(totals.loss() == 1.5);
  CHECK(totals.perplexity() == std::exp(1.5));
  CHECK(totals.token_accuracy() == 0.5);
}

TEST_CASE("evaluate: ranks share the batches out, and each has the sums that one of them has alone") {
  const auto folder = std::filesystem::path(LORA_FIXTURES) / "golden" / "qwen3";
  const auto source = model::Source::open(folder);
  const auto evaluated = [&](comm::Ranks* ranks, Index records, const std::atomic<int>* stop, Index* passes) {
    cpu::Device dev(1);
    model::Decoder<cpu::Device, float> decoder(dev, source);
    const auto example_of = [](Index i) { return record(3 + 7 * i % 11, 1); };
    Index seen = 0;
    return evaluate(dev, decoder, records, example_of,
                    {.batch = 2,
                     .window = 8,
                     .see =
                         [&](const model::Evaluation& own) {
                           if (passes != nullptr && own.labeled > seen) ++*passes;
                           seen = own.labeled;
                         },
                     .stop = stop,
                     .ranks = ranks});
  };
  for (const Index records : {Index{1}, Index{4}, Index{9}}) {
    CAPTURE(records);
    Index all_passes = 0;
    const model::Evaluation alone = evaluated(nullptr, records, nullptr, &all_passes);
    for (const int size : {1, 2, 3, 5}) {
      CAPTURE(size);
      std::vector<model::Evaluation> results(static_cast<std::size_t>(size));
      std::vector<Index> passes(results.size());
      test::run_ranks(size, [&](auto& rank) {
        const auto at = static_cast<std::size_t>(rank.rank());
        results[at] = evaluated(&rank, records, nullptr, &passes[at]);
      });
      for (const model::Evaluation& one : results) {
        CHECK(one.loss_sum == alone.loss_sum);
        CHECK(one.labeled == alone.labeled);
        CHECK(one.correct == alone.correct);
        CHECK(one.records == records);
        CHECK(one.tokens == alone.tokens);
        CHECK_FALSE(one.stopped);
      }
      for (std::size_t i = 0; i < passes.size(); ++i)
        CHECK(passes[i] == (all_passes + size - 1 - static_cast<Index>(i)) / size);
    }
  }
  std::atomic<int> stop = 1;
  test::run_ranks(3,
                  [&](auto& rank) { CHECK(evaluated(&rank, 9, rank.rank() == 1 ? &stop : nullptr, nullptr).stopped); });
}

TEST_CASE("evaluate: perplexity is transformers' with PEFT, whole and in windows") {
  for (const char* family : {"qwen2", "qwen3", "llama", "smollm3", "gemma2", "gemma3_text"}) {
    CAPTURE(family);
    const auto folder = std::filesystem::path(LORA_FIXTURES) / "golden" / family;
    const auto json = io::read_json(folder / "perplexity.json");
    std::vector<data::Example> examples;
    for (const auto& item : json.at("data")) {
      data::Example& example = examples.emplace_back();
      example.tokens = item.at("input_ids").get<std::vector<std::int32_t>>();
      example.labels = item.at("labels").get<std::vector<std::int32_t>>();
    }
    cpu::Device dev(2);
    model::Decoder<cpu::Device, float> decoder(dev, model::Source::open(folder));
    const auto adapter = model::open_adapter(folder / "adapter");
    decoder.attach(dev, adapter.config);
    model::load_adapter(dev, decoder, adapter);
    for (const auto& expected : json.at("results")) {
      const auto window = expected.at("window").get<Index>();
      CAPTURE(window);
      for (const Index batch : {1, 3}) {
        std::vector<RecordLoss> each;
        const auto totals = evaluate(dev, decoder, static_cast<Index>(examples.size()),
                                     [&](Index i) { return examples[static_cast<std::size_t>(i)]; },
                                     {.batch = batch, .window = window, .each = &each});
        const double perplexity = expected.at("perplexity").get<double>();
        REQUIRE(each.size() == examples.size());
        for (std::size_t i = 0; i < each.size(); ++i) {
          CAPTURE(i);
          if (each[i].labeled == 0) continue;
          const auto alone = evaluate(dev, decoder, 1, [&](Index) { return examples[i]; }, {.window = window});
          CHECK(each[i].labeled == alone.labeled);
          // Sums of some hundred float32 terms in another order.
          CHECK(std::fabs(each[i].loss() - alone.loss()) < 1e-5 * alone.loss());
        }
        CHECK(totals.labeled == expected.at("labeled").get<Index>());
        CHECK(std::fabs(totals.perplexity() - perplexity) < 1e-5 * perplexity);
      }
    }
  }
}

}  // namespace evaluate_test
