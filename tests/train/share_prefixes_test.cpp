// Runs whose micro-batches have the beginnings that sequences have in common once.

#include <doctest/doctest.h>

#include <atomic>
#include <string>
#include <string_view>
#include <vector>

#include "lora/core/random.hpp"
#include "lora/train/offload.hpp"
#include "support/message_of.hpp"
#include "support/proof_device.hpp"
#include "support/quiet.hpp"
#include "support/thread_ranks.hpp"
#include "support/workshop.hpp"

namespace share_prefixes_test {

using namespace lora;
using namespace lora::test;

namespace {

/// Two documents of 40 and 60 tokens, each with questions of 18 more, some of which have two answers; none has all.
struct Library {
  Workshop shop;

  Library() {
    Random random(4);
    const auto draw = [&](Index count) {
      std::vector<int> ids;
      while (std::ssize(ids) < count) ids.push_back(static_cast<int>(random.below(61)));
      return ids;
    };
    const std::vector<int> documents[] = {draw(40), draw(60)};
    std::string text;
    for (int i = 0; i < 12; ++i) {
      std::vector<int> ids = documents[i % 3 == 0 ? 0 : 1];
      if (i == 7) ids = draw(9);  // alone
      const std::vector<int> question = draw(18);
      for (int answer = 0; answer < 1 + i % 2; ++answer) {
        std::vector<int> all = ids, labels;
        all.insert(all.end(), question.begin(), question.end());
        labels.assign(all.size(), -100);
        for (const int id : draw(1 + i % 4)) {
          all.push_back(id);
          labels.push_back(id);
        }
        text += io::to_text({{"input_ids", all}, {"labels", labels}}, -1) + "\n";
      }
    }
    io::write_file(shop.temp / "train.jsonl", std::string_view(text));
  }

  Config config(const std::string& output, bool shares) const {
    Config config = shop.config(output);
    config.lora_dropout = 0;
    config.share_prefixes = shares;
    config.per_device_train_batch_size = 1;
    config.gradient_accumulation_steps = 9;
    config.max_tokens_per_micro_batch = 200;
    config.logging_steps = 1;
    return config;
  }
};

/// Losses and gradient norms of a run's steps are another's, but for sums in another order.
void expect_near(const io::Path& one, const io::Path& other) {
  const auto a = log_of(one), b = log_of(other);
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    for (const char* field : {"loss", "grad_norm", "eval_loss"}) {
      REQUIRE(a[i].contains(field) == b[i].contains(field));
      // Steps of AdamW at 1e-2 on roundings of 2⁻²⁴, of which some are of gradients near 0.
      if (a[i].contains(field)) CHECK(a[i].at(field).get<double>() == doctest::Approx(b[i].at(field)).epsilon(1e-4));
    }
}

struct Counts {
  Index tokens = 0, computed = 0;
};

Counts counts_of(const io::Path& run) {
  Counts counts;
  for (const io::Json& line : log_of(run)) {
    if (!line.contains("tokens")) continue;
    const Index tokens = line.at("tokens");
    counts.tokens += tokens;
    counts.computed += line.value("computed_tokens", tokens);
  }
  return counts;
}

}  // namespace

TEST_CASE("share_prefixes: steps are the same, of fewer rows, which the log counts") {
  const Quiet quiet;
  const Library library;
  const io::Path& folder = library.shop.temp.path();
  for (const bool full : {false, true})
    for (const Index recomputed : {0, 1}) {
      CAPTURE(full);
      CAPTURE(recomputed);
      std::string names[2];
      for (const bool shares : {false, true}) {
        Config config = library.config(
            names[shares] = concat(full ? "full " : "lora ", recomputed, shares ? " shared" : " apart"), shares);
        if (full) {
          config.finetuning_type = "full";
          config.lora_rank.reset();
        }
        config.gradient_checkpointing = recomputed > 0;
        config.max_steps = 6;
        fine_tune(config);
      }
      expect_near(folder / names[1], folder / names[0]);
      const Counts apart = counts_of(folder / names[0]), shared = counts_of(folder / names[1]);
      CHECK(apart.computed == apart.tokens);
      CHECK(shared.tokens == apart.tokens);
      CHECK(shared.computed < 0.6 * static_cast<double>(shared.tokens));
      CHECK(io::read_file(folder / names[0] / "trainer_log.jsonl").find("computed_tokens") == std::string::npos);
      CHECK(io::read_json(folder / names[1] / "run_config.json").at("share_prefixes") == true);
      CHECK(io::read_json(folder / names[1] / "training_metrics.json").at("total_tokens") == shared.tokens);
    }
  CHECK(quiet.said(" of them computed, in "));
  CHECK_FALSE(quiet.said("nothing is shared"));
  // With room for one alone, and where all is learnt, nothing is shared, and that is said.
  Config config = library.config("alone", true);
  config.max_tokens_per_micro_batch = 60;
  config.max_steps = 1;
  fine_tune(config);
  CHECK(
      quiet.said("share_prefixes: nothing is shared in the first steps: no sequences of a micro-batch have 16 tokens"));
  // In groups of so many sequences as well.
  config = library.config("by sequences", true);
  config.max_tokens_per_micro_batch.reset();
  config.per_device_train_batch_size = 3;
  config.gradient_accumulation_steps = 3;
  config.max_steps = 6;
  fine_tune(config);
  expect_near(folder / "by sequences", folder / "lora 0 apart");
  const Counts counts = counts_of(folder / "by sequences");
  CHECK(counts.computed < counts.tokens);
}

TEST_CASE("share_prefixes: the same bits on any number of ranks, and after a resume") {
  const Quiet quiet;
  const Library library;
  const auto config_of = [&](const std::string& output) {
    Config config = library.config(output, true);
    config.per_device_train_batch_size = 6;
    config.gradient_accumulation_steps = 2;
    config.max_tokens_per_micro_batch = 150;
    config.step_units = 2;
    config.max_steps = 6;
    return config;
  };
  fine_tune(config_of("one"));
  Config parts = config_of("parts");
  std::atomic<int> stop{0};
  RunOptions options;
  options.stop = &stop;
  options.on_step = [&](const StepMetrics& metrics) {
    if (metrics.step == 3) stop = 15;
  };
  fine_tune(parts, options);
  parts.resume_from_checkpoint = "auto";
  fine_tune(parts);
  const auto whole = lasting_files(library.shop.temp / "one");
  expect_same(lasting_files(library.shop.temp / "parts"), whole);
  run_ranks(2, [&](ThreadRank& self) {
    cpu::Device dev(1);
    const Config two = config_of("two");
    RunOptions of_rank;
    of_rank.log = [](log::Level, std::string_view) {};
    train::TrainingRun<cpu::Device, float>(dev, two, inputs::open_source(two), of_rank, &self).run();
  });
  expect_same(lasting_files(library.shop.temp / "two"), whole);
}

TEST_CASE("share_prefixes: not on a device whose attention lays sequences out whole") {
  Config config;
  CHECK_NOTHROW(train::expect_prefixes_fit<proof::Device>(config));
  config.share_prefixes = true;
  CHECK_NOTHROW(train::expect_prefixes_fit<cpu::Device>(config));
  CHECK(message_of<ConfigError>([&] { train::expect_prefixes_fit<proof::Device>(config); }) ==
        "key share_prefixes: given true, but the run's device is not a CPU: the memory that this needs on NPUs is not "
        "forecast; allowed: false");
}

}  // namespace share_prefixes_test
