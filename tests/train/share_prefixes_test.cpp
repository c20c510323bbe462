// Runs whose micro-batches have the beginnings that sequences have in common once.

#include <doctest/doctest.h>

#include <atomic>
#include <string>
#include <string_view>
#include <vector>

#include "lora/core/random.hpp"
#include "lora/train/offload.hpp"
#include "support/instantiate.hpp"
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
        text +=
            io::to_text({{"input_ids", all}, {"labels", labels}, {"difficulty", i < 6 ? "easy" : "hard"}}, -1) + "\n";
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
  // With room for one alone, and where all is learned, nothing is shared, and that is said.
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

TEST_CASE("share_prefixes: steps are the same in stages and with a curriculum") {
  const Quiet quiet;
  const Library library;
  const io::Path& folder = library.shop.temp.path();
  const auto expect_same_steps = [&](const std::string& name, const auto& set) {
    CAPTURE(name);
    for (const bool shares : {false, true}) {
      Config config = library.config(name + (shares ? " shared" : " apart"), shares);
      set(config);
      fine_tune(config);
    }
    expect_near(folder / (name + " shared"), folder / (name + " apart"));
    const Counts apart = counts_of(folder / (name + " apart")), shared = counts_of(folder / (name + " shared"));
    CHECK(apart.computed == apart.tokens);
    CHECK(shared.tokens == apart.tokens);
    CHECK(shared.computed < 0.7 * static_cast<double>(shared.tokens));
  };
  expect_same_steps("stages", [](Config& config) {
    config.max_steps = -1;
    config.stages = {{.until_step = 3, .cutoff_len = 70}, {.gradient_accumulation_steps = 4}};
  });
  expect_same_steps("curriculum", [](Config& config) {
    config.max_steps = 6;
    config.use_curriculum = true;
    config.curriculum_stages = {{0.5, {{"easy", 1}}}, {1, {{"easy", 0.25}, {"hard", 0.75}}}};
  });
}

TEST_CASE("share_prefixes: the same bits wherever layers lie, streamed or shared out") {
  const Quiet quiet;
  const Library library;
  const auto config_of = [&](const std::string& name) {
    Config config = library.config(name, true);
    config.max_tokens_per_micro_batch.reset();
    config.per_device_train_batch_size = 5;
    config.gradient_accumulation_steps = config.step_units = 2;
    config.max_steps = 4;
    return config;
  };
  const auto numbers = [&](const std::string& name) {
    auto files = lasting_files(library.shop.temp / name);
    std::erase_if(files, [](const auto& file) { return file.first.find("trainer_state") != std::string::npos; });
    return files;
  };
  fine_tune(config_of("cpu"));
  const auto whole = numbers("cpu");
  const auto train_on_proof = [&](const Config& config, comm::Communicator<proof::Device>* self = nullptr) {
    RunOptions options;
    options.log = [](log::Level, std::string_view) {};
    proof::Device dev(1, {.late_sources = true});
    train::TrainingRun<proof::Device, float>(dev, config, inputs::open_source(config), options, self).run();
  };
  Config config = config_of("streamed");
  config.offload = "all";
  train_on_proof(config);
  expect_same(numbers("streamed"), whole);
  config = config_of("shared out");
  config.zero_stage = 3;
  config.ranks = 2;
  config.gradient_accumulation_steps = 1;
  run_ranks<proof::Device>(2, [&](auto& self) { train_on_proof(config, &self); });
  expect_same(numbers("shared out"), whole);
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

TEST_CASE("share_prefixes: unless it is given, without dropout and noise, with as much room as it takes") {
  const Quiet quiet;
  const Library library;
  const auto recorded = [&](const std::string& name) {
    return io::read_json(library.shop.temp / name / "run_config.json");
  };
  Config config = library.config("usual", true);
  config.share_prefixes.reset();
  config.max_tokens_per_micro_batch.reset();
  config.per_device_train_batch_size.reset();
  config.eval_dataset = config.dataset;
  config.max_steps = 2;
  Config apart = config;
  fine_tune(config);
  CHECK(recorded("usual").at("share_prefixes") == true);
  CHECK(recorded("usual").at("max_tokens_per_micro_batch") == 1024 + 60);  // the longer document
  const Counts counts = counts_of(library.shop.temp / "usual");
  CHECK(counts.computed < counts.tokens);
  const io::Json metrics = io::read_json(library.shop.temp / "usual" / "training_metrics.json");
  CHECK(metrics.at("total_tokens") == counts.tokens);
  CHECK(metrics.at("computed_tokens") == counts.computed);
  CHECK(quiet.said(concat(" % of them computed, in ")));
  CHECK(io::read_file(library.shop.temp / "usual" / "report.html").find("of them computed") != std::string::npos);
  CHECK_FALSE(quiet.said("share_prefixes: "));
  // An evaluation shares as well: the same loss, but for its last bits.
  apart.output_dir = (library.shop.temp / "apart").native();
  apart.share_prefixes = false;
  fine_tune(apart);
  CHECK(recorded("apart").at("share_prefixes") == false);
  CHECK(recorded("apart").at("max_tokens_per_micro_batch") == 1024);
  expect_near(library.shop.temp / "usual", library.shop.temp / "apart");
  CHECK_FALSE(io::read_json(library.shop.temp / "apart" / "training_metrics.json").contains("computed_tokens"));
  CHECK_FALSE(quiet.said("share_prefixes: "));
  apart.share_prefixes.reset();
  apart.overwrite_output_dir = true;
  apart.lora_dropout = 0.1;
  fine_tune(apart);
  CHECK(recorded("apart").at("share_prefixes") == false);
  CHECK(quiet.said("share_prefixes: false with lora_dropout, which draws other numbers for each sequence"));
  apart.lora_dropout = 0;
  apart.neftune_noise_alpha = 5;
  fine_tune(apart);
  CHECK(recorded("apart").at("share_prefixes") == false);
  CHECK(quiet.said("share_prefixes: false with neftune_noise_alpha, which"));
}

TEST_CASE("share_prefixes: room and the share of labels are those of the first steps of each stage") {
  const Quiet quiet;
  const Workshop shop;
  // Five records with 40 tokens in common and three with 20; of each the next two are learned, and eight follow.
  std::string text;
  for (int i = 0; i < 8; ++i) {
    std::vector<int> ids, labels;
    for (int j = 0; j < (i < 5 ? 40 : 20); ++j) ids.push_back(i < 5 ? j : 59 - j);
    labels.assign(ids.size(), -100);
    for (int j = 0; j < 10; ++j) {
      ids.push_back((7 * i + j) % 61);
      labels.push_back(j < 2 ? ids.back() : -100);
    }
    text += io::to_text({{"input_ids", ids}, {"labels", labels}, {"difficulty", i < 5 ? "easy" : "hard"}}, -1) + "\n";
  }
  io::write_file(shop.temp / "train.jsonl", std::string_view(text));
  Config config = shop.config("run");
  config.lora_dropout = 0;
  config.per_device_train_batch_size.reset();
  config.max_tokens_per_micro_batch.reset();
  config.gradient_accumulation_steps = 4;
  config.shuffle = false;
  config.max_steps = -1;
  config.stages = {{.until_step = 3}, {.until_step = 5, .cutoff_len = 45}};
  const cpu::Device dev(1);
  const auto prepared = [&] { return train::Prepared(dev, config, inputs::open_source(config), RunOptions{}); };
  {
    const auto run = prepared();
    const auto& stages = run.plan.stages();
    REQUIRE(stages.size() == 2);
    // The row before the first that is learned has a label. Four of the first kind, then one and the second kind.
    for (const auto& stage : stages) CHECK(stage.limit.tokens == 1024 + 39);
    CHECK(stages[0].shared.labeled == doctest::Approx(8.0 / (39 + 4 * 11)));
    CHECK(stages[1].shared.labeled == doctest::Approx(8.0 / (39 + 4 * 6)));
    // Every other step has less in common: the fifth of the first kind, and three of the second.
    CHECK(stages[0].shared.rows == doctest::Approx((50 + 19 + 3 * 11) / (50.0 + 3 * 30)));
    CHECK(stages[1].shared.rows == doctest::Approx((45 + 19 + 3 * 11) / (45.0 + 3 * 30)));
  }
  // Those of a curriculum's second part, which begins behind what is looked at of the first.
  Config taught = config;
  taught.stages.clear();
  taught.max_steps = 12;
  taught.use_curriculum = true;
  taught.curriculum_stages = {{0.75, {{"easy", 1}}}, {1, {{"hard", 1}}}};
  const train::Prepared with_parts(dev, taught, inputs::open_source(taught), RunOptions{});
  CHECK(with_parts.plan.stages()[0].shared.rows == doctest::Approx((19 + 4 * 11) / 120.0));
  config.share_prefixes = false;
  const auto run = prepared();
  for (const auto& stage : run.plan.stages())
    CHECK((stage.limit.tokens == 1024 && stage.shared.rows == 1 && stage.shared.labeled == 0));
}

TEST_CASE(
    "share_prefixes: the rows that are left are foreseen; with a limit, and on a device, those of whole sequences") {
  const Quiet quiet;
  const Library library;
  Config config = library.config("run", true);
  config.max_tokens_per_micro_batch = 4096;
  config.max_steps = 4;
  config.eval_dataset.clear();
  config.eval_steps.reset();
  const auto saved = [&]<class D>(D&& dev, const Config& settings) {
    const train::Prepared run(cpu::Threads(1), settings, inputs::open_source(settings), RunOptions{});
    const auto plans = train::plan_memory<D, float>(train::memory_basis<D, float>(dev, run.blueprint), run.plan,
                                                    run.survey.train, {}, settings);
    return plans[0].needs.activations;
  };
  const double foreseen = saved(cpu::Device(1), config);
  Config limited = config;
  limited.memory_limit_gib = 8;
  const double most = saved(cpu::Device(1), limited);
  CHECK(saved(proof::Device(1), config) ==
        doctest::Approx(most).epsilon(0.1));  // whose layers stay where there is room
  cpu::Device dev(1);
  train::TrainingRun<cpu::Device, float>(dev, config, inputs::open_source(config), {}).run();
  const auto taken = static_cast<double>(dev.arena().peak_saved());
  CHECK(foreseen >= taken);
  CHECK(foreseen < 1.25 * taken);  // nine of the longest record, of which the first steps' have as much in common
  CHECK(most > 1.5 * taken);
}

TEST_CASE("share_prefixes: not on a device whose attention does not take the model's heads in trees") {
  Config config;
  model::Config model;
  model.num_attention_heads = 4;
  model.num_key_value_heads = 2;
  model.head_dim = 80;
  cpu::Device dev(1);
  train::settle_prefixes(dev, config, model);
  CHECK_FALSE(config.share_prefixes);
  const kernel::AttentionShape heads = model::attention_shape(model, 0);
  train::settle_prefixes(config, heads, false);
  CHECK(config.share_prefixes == false);
  config.share_prefixes = true;
  CHECK_NOTHROW(train::settle_prefixes(dev, config, model));
  CHECK(message_of<ConfigError>([&] { train::settle_prefixes(config, heads, false); }) ==
        "key share_prefixes: given true, but the device's attention does not take it: the model has 4 heads of 80 "
        "numbers, and NPUs take heads of a multiple of 64, not too many, where the toolkit has RingAttentionUpdate; "
        "allowed: false");
  model.windows = {0, 4096, 0};
  config.share_prefixes = false;
  train::settle_prefixes(dev, config, model);
  CHECK(config.share_prefixes == false);
  config.share_prefixes = true;
  CHECK(message_of<ConfigError>([&] { train::settle_prefixes(config, model::attention_shape(model, 4096), false); }) ==
        "key share_prefixes: given true, but the device's attention does not take it: the model has layers that see a "
        "window of 4096 tokens; allowed: false");
}

}  // namespace share_prefixes_test
