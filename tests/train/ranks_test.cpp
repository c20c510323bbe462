// Runs that several ranks make together: threads of this process, each with a device and a model of its own.

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "lora/inputs/device.hpp"
#include "lora/train/trainer.hpp"
#include "support/effort.hpp"
#include "support/message_of.hpp"
#include "support/quiet.hpp"
#include "support/talking_model.hpp"
#include "support/thread_ranks.hpp"
#include "support/workshop.hpp"

namespace ranks_test {

using namespace lora;
using namespace lora::test;

namespace {

/// What each rank is told besides the settings, by its number.
using Options = std::function<RunOptions(int rank)>;

struct Outcome {
  std::vector<RunResult> results{};
  std::vector<std::string> said{}, errors{};  ///< by each rank
  std::vector<double> peaks{};                ///< bytes that each rank's device had at most
};

template <class T = float>
Outcome fine_tune_by(int ranks, const Config& config, const Options& options_of = {}) {
  Outcome outcome;
  outcome.results.resize(static_cast<std::size_t>(ranks));
  outcome.said.resize(static_cast<std::size_t>(ranks));
  outcome.peaks.resize(static_cast<std::size_t>(ranks));
  outcome.errors = try_ranks(ranks, [&](ThreadRank& self) {
    const auto at = static_cast<std::size_t>(self.rank());
    RunOptions options = options_of ? options_of(self.rank()) : RunOptions{};
    options.log = [&, at](log::Level, std::string_view text) { outcome.said[at] += concat(text, "\n"); };
    cpu::Device dev(1);
    train::TrainingRun<cpu::Device, T> run(dev, config, inputs::open_source(config), options, &self);
    outcome.results[at] = run.run();
    outcome.peaks[at] = static_cast<double>(dev.allocated().peak());
  });
  return outcome;
}

void expect_no_error(const Outcome& outcome) {
  for (const std::string& error : outcome.errors) CHECK(error.empty());
}

/// Units for up to four ranks.
Config shared_config(const Workshop& shop, const std::string& output) {
  Config config = shop.config(output);
  config.step_units = 4;
  return config;
}

/// A step of all weights, which may be taken again in the same folder.
Config one_full_step(const Workshop& shop) {
  Config config = shared_config(shop, "run");
  config.finetuning_type = "full";
  config.lora_rank.reset();
  config.lora_dropout = 0;
  config.max_steps = 1;
  config.overwrite_output_dir = true;
  return config;
}

}  // namespace

TEST_CASE("ranks: any number of them writes the bytes that one process writes, and only the first writes") {
  const Quiet quiet;
  const Workshop shop;
  fine_tune(shared_config(shop, "alone"));
  const auto alone = lasting_files(shop.temp / "alone");
  for (const int ranks : {1, 3}) {
    CAPTURE(ranks);
    if (ranks != 3 && !effort(true, false, "ranks: a single one")) continue;
    const std::string output = concat("by ", ranks);
    const Outcome outcome = fine_tune_by(ranks, shared_config(shop, output));
    expect_no_error(outcome);
    expect_same(lasting_files(shop.temp / output), alone);
    CHECK(events_of(shop.temp / output) == events_of(shop.temp / "alone"));
    for (std::size_t rank = 0; rank < outcome.results.size(); ++rank) {
      const RunResult& result = outcome.results[rank];
      CHECK(result.rank == static_cast<int>(rank));
      CHECK(result.size == ranks);
      CHECK(result.is_distributed() == (ranks > 1));
      CHECK(result.metrics.ranks.size() == (ranks > 1 ? static_cast<std::size_t>(ranks) : 0));
      CHECK(result.metrics.finished);
      CHECK(result.metrics.steps == 24);
      CHECK(result.metrics.train_loss == outcome.results[0].metrics.train_loss);
      CHECK(result.metrics.total_tokens == outcome.results[0].metrics.total_tokens);
      CHECK(result.final_model == shop.temp / output / "final_model");
    }
    const auto& first = outcome.said[0];
    CHECK(first.find("step 24/24") != std::string::npos);
    for (std::size_t rank = 1; rank < outcome.said.size(); ++rank)
      CHECK(outcome.said[rank].find("step 24/24") == std::string::npos);
  }
}

TEST_CASE("ranks: stages, a curriculum, files that are counted, an early end and the best model are the same for all") {
  const Quiet quiet;
  const Workshop shop;
  write_classes(shop.temp / "train.jsonl", {"a", "b", "c"});
  const auto config_of = [&](const std::string& output) {
    Config config = shared_config(shop, output);
    config.finetuning_type = "full";
    config.lora_rank.reset();
    config.lora_dropout = 0;
    write_tokens(shop.temp / "more.jsonl", 9, 5);
    config.dataset.push_back((shop.temp / "more.jsonl").native());
    config.num_train_epochs = 3;  // the default: the last stage has an end of its own
    config.eval_steps = 2;
    config.save_steps = 2;
    config.early_stopping_patience = 2;
    config.early_stopping_threshold = 10;  // no evaluation improves by as much
    config.load_best_model_at_end = true;
    config.stages = {{.name = "first", .until_step = 9, .trainable = {{R"(layers\.1\.)"}}},
                     {.until_step = 15, .use_curriculum = true, .curriculum_stages = {{{1, {{"a", 0.5}, {"b", 0.5}}}}}},
                     {.until_step = 27}};
    return config;
  };
  fine_tune(config_of("alone"));
  const auto alone = lasting_files(shop.temp / "alone");
  const auto metrics_of = [&](const std::string& output) {
    io::Json metrics = io::read_json(shop.temp / output / "training_metrics.json");
    for (const char* field : {"tokens_per_second", "peak_memory_gib", "seconds", "ranks"}) metrics.erase(field);
    return metrics;
  };
  CHECK(metrics_of("alone").at("stages").size() == 3);
  CHECK(metrics_of("alone").at("ended_early") == "early_stopping_patience");
  for (const int ranks : {2, 3})
    for (const Index zero_stage : {0, 1, 2, 3}) {
      CAPTURE(ranks);
      CAPTURE(zero_stage);
      if (zero_stage < 3 && zero_stage != (ranks == 2 ? 1 : 2) &&
          !effort(true, false, "ranks: of stages of training four of eight ways to share"))
        continue;
      const std::string output = concat("by ", ranks, " in stage ", zero_stage);
      Config config = config_of(output);
      config.zero_stage = zero_stage;
      expect_no_error(fine_tune_by(ranks, config));
      expect_same(lasting_files(shop.temp / output), alone);
      CHECK(metrics_of(output) == metrics_of("alone"));
    }
}

TEST_CASE("ranks: a best model that one of them can't read is taken by none of those that share out what trains") {
  const Quiet quiet;
  const Workshop shop;
  for (const bool everywhere : {true, false}) {
    CAPTURE(everywhere);
    std::array<int, 2> taken{}, kept{};
    std::array<std::string, 2> said;
    run_ranks(2, [&](ThreadRank& self) {
      const auto at = static_cast<std::size_t>(self.rank());
      const log::Redirect redirect([&](log::Level, std::string_view text) { said[at] += concat(text, "\n"); });
      Config config = one_full_step(shop);
      config.ranks = 2;
      config.zero_stage = 3;
      config.load_best_model_at_end = true;
      if (!everywhere && at == 1) config.output_dir += " of the second";
      cpu::Device dev(1);
      const cpu::Threads threads(1);
      train::Prepared run(threads, config, inputs::open_source(config), RunOptions{});
      train::Learner<cpu::Device, float> learner(dev, self, run);
      train::Saving<cpu::Device, float> saving(dev, self, learner.decoder(), run);
      run::RunState state;
      state.step = state.best_step = 3;
      state.last_eval_loss = state.best_eval_loss = state.best_metric = 0.5;
      saving.checkpoint(state, learner.stepper());
      self.agree(1);  // until it is there
      taken[at] = saving.take_best(state).has_value();
      kept[at] = saving.forget_lost_best(state, true).empty() && state.best_step == 3;
    });
    CHECK(taken[0] == everywhere);
    CHECK(taken[1] == everywhere);
    CHECK(kept[0] == everywhere);
    CHECK(kept[1] == everywhere);
    if (everywhere) continue;
    const std::string begins = "cannot take the best, step 3's: ";
    CHECK(said[0].find(begins + "not all ranks can read it; final_model is the last step's\n") != std::string::npos);
    CHECK(said[1].find(begins) != std::string::npos);
    CHECK(said[1].find("not all ranks") == std::string::npos);
  }
}

TEST_CASE("ranks: answers are not written while ranks gather what trains from each other") {
  const Quiet quiet;
  const Workshop shop;
  Config config = one_full_step(shop);
  config.zero_stage = 3;
  config.eval_predict = true;
  for (const std::string& error : fine_tune_by(2, config).errors)
    CHECK(error ==
          "key eval_predict: given true, but with zero_stage 3 ranks gather each layer together, and answers differ in "
          "length; allowed: false, or zero_stage 0, 1 or 2");
}

TEST_CASE(
    "ranks: with the optimizer's state shared out each has its part of the moments, then of gradients and values") {
  const Quiet quiet;
  const Workshop shop;
  Config config = one_full_step(shop);
  config.max_tokens_per_micro_batch = 1;  // a sequence at a time
  const Outcome whole = fine_tune_by(4, config);
  expect_no_error(whole);
  config.zero_stage = 1;
  const Outcome parts = fine_tune_by(4, config);
  expect_no_error(parts);
  const auto sizes = inputs::blueprint_of(config, inputs::open_source(config)).parameters().sizes([](std::string_view) {
    return true;
  });
  const double saved =  // by the rank with the largest part
      train::trained_memory<float>(sizes).moments - train::trained_memory<float>(sizes, 4).moments;
  // Parts differ by blocks, and for a checkpoint a tensor of the state is gathered.
  const double apart = 2 * sizeof(float) * kernel::sum_block * static_cast<double>(sizes.size());
  for (std::size_t rank = 0; rank < 4; ++rank) {
    CAPTURE(rank);
    CHECK(whole.peaks[rank] - parts.peaks[rank] >= saved - apart);
    CHECK(whole.peaks[rank] - parts.peaks[rank] <= saved + apart);
  }
  config.zero_stage = 2;
  const Outcome gradients = fine_tune_by(4, config);
  expect_no_error(gradients);
  const auto by_layer =
      inputs::blueprint_of(config, inputs::open_source(config)).parameters().sizes([](std::string_view) {
        return true;
      });
  const auto held = [](const std::vector<nn::GroupSize>& groups) {
    return train::trained_memory<float>(groups, 4).total() + train::sums_memory<float>(groups, 4, 4);
  };
  CHECK(held(by_layer) < 0.95 * held(sizes));  // of two layers, and an embedding that is larger than both
  const double most = *std::max_element(gradients.peaks.begin(), gradients.peaks.end());
  const double before = *std::max_element(parts.peaks.begin(), parts.peaks.end());
  CHECK(std::fabs(before - most - (held(sizes) - held(by_layer))) <= 4 * apart);
  config.zero_stage = 3;
  const Outcome values = fine_tune_by(4, config);
  expect_no_error(values);
  const auto shared =
      inputs::blueprint_of(config, inputs::open_source(config)).parameters().sizes([](std::string_view) {
        return true;
      });
  const auto masters = [](const std::vector<nn::GroupSize>& groups) {
    return train::trained_memory<float>(groups, 4).masters;
  };
  double most_masters = 0;  // a quarter of each bucket, in whole blocks
  for (const nn::GroupSize& group : shared)
    for (const nn::Bucket& bucket : group.values)
      most_masters += 4.0 * static_cast<double>((bucket.size() / kernel::sum_block + 3) / 4 * kernel::sum_block);
  CHECK(masters(shared) == most_masters);
  CHECK(masters(shared) < masters(by_layer) / 2);
  const double least = *std::max_element(values.peaks.begin(), values.peaks.end());
  CHECK(std::fabs(most - least - (held(by_layer) - held(shared))) <= 4 * apart);
}

TEST_CASE("ranks: gradients leave with each micro-batch only where a unit is one") {
  const Quiet quiet;
  const Workshop shop;
  const auto units_of = [&](const std::function<void(Config&)>& change) {
    Config config = shop.config("run");
    config.zero_stage = 2;
    config.ranks = 2;
    change(config);
    const cpu::Threads threads(1);
    return train::Prepared(threads, config, inputs::open_source(config), RunOptions{}).config.step_units;
  };
  CHECK(units_of([](Config&) {}) == 4);                                                  // two micro-batches of each
  CHECK(units_of([](Config& config) { config.max_tokens_per_micro_batch = 50; }) == 8);  // a sequence each
  CHECK(units_of([](Config& config) { config.zero_stage = 1; }) == 2);
  CHECK(units_of([](Config& config) { config.ranks = 1; }) == 1);
  CHECK(units_of([](Config& config) {  // of the stage that has most, more than the run's own steps have sequences
          config.stages = {{.until_step = 2, .gradient_accumulation_steps = 5}, {.until_step = 4}};
        }) == 10);
  const auto told = [&](const std::function<void(Config&)>& change) {
    Config config = shared_config(shop, "run");
    config.zero_stage = 2;
    config.ranks = 2;
    config.gradient_accumulation_steps = 1;
    change(config);
    return message_of<ConfigError>([&] {
      const cpu::Threads threads(1);
      const train::Prepared run(threads, config, inputs::open_source(config), RunOptions{});
    });
  };
  CHECK(told([](Config& config) { config.step_units = 3; }) == "nothing was thrown");
  CHECK(told([](Config& config) { config.step_units = 2; }) == "nothing was thrown");
  CHECK(told([](Config& config) {
          config.per_device_train_batch_size = 1;
          config.gradient_accumulation_steps = 2;
          config.step_units = 3;
        }) ==
        "key zero_stage: given 2, where gradients leave with each micro-batch, but of the 3 units of a step one has 2 "
        "sequences, and a micro-batch holds 1; allowed: 0, 1, or step_units 4");
  CHECK(told([](Config& config) {
          config.step_units = 2;
          config.max_tokens_per_micro_batch = 100;
        }) ==
        "key zero_stage: given 2, where gradients leave with each micro-batch, but of the 2 units of a step one has 2 "
        "sequences, and a micro-batch holds one at least (max_tokens_per_micro_batch); allowed: 0, 1, or step_units 4");
  CHECK(told([](Config& config) {
          config.step_units = 2;
          config.stages = {{.until_step = 3, .per_device_train_batch_size = 1, .gradient_accumulation_steps = 4},
                           {.until_step = 6}};
        }).starts_with("stage 1: key zero_stage: given 2"));
}

TEST_CASE("ranks: the sums of gradients that a step holds are those that the forecast counts") {
  const Quiet quiet;
  const Workshop shop;
  Config config = one_full_step(shop);
  config.max_tokens_per_micro_batch = 1;  // a sequence at a time, whoever has it
  const auto sizes = inputs::blueprint_of(config, inputs::open_source(config)).parameters().sizes([](std::string_view) {
    return true;
  });
  const double gradients = train::trained_memory<float>(sizes).gradients;
  const auto peak_of = [&](Index units, int ranks) {
    config.step_units = units;
    const Outcome outcome = fine_tune_by(ranks, config);
    expect_no_error(outcome);
    return *std::max_element(outcome.peaks.begin(), outcome.peaks.end());
  };
  const double without = peak_of(1, 1);
  for (const auto& pair : {std::pair<Index, int>{2, 1}, {4, 1}, {2, 2}, {4, 2}, {4, 4}}) {
    const Index units = pair.first;  // clang 14 captures no structured bindings
    const int ranks = pair.second;
    CAPTURE(units);
    CAPTURE(ranks);
    const double sums = peak_of(units, ranks) - without, forecast = gradients * comm::held_sums(units, ranks);
    // Each has whole blocks of each node's slabs, and a few numbers of each unit.
    const double blocks = ranks == 1 ? 0 : static_cast<double>(ranks * std::ssize(sizes) * kernel::sum_block);
    CHECK(sums >= forecast);
    CHECK(sums <= forecast + sizeof(float) * blocks + 0.001 * static_cast<double>(units) * gradients);
  }
}

TEST_CASE("ranks: what each did is in the metrics, and what those behind the first say in logs of their own") {
  const Quiet quiet;
  const Workshop shop;
  Config config = shared_config(shop, "run");
  config.max_steps = 3;
  expect_no_error(fine_tune_by(3, config));
  const io::Json metrics = io::read_json(shop.temp / "run" / "training_metrics.json");
  REQUIRE(metrics.at("ranks").size() == 3);
  for (int rank = 0; rank < 3; ++rank) {
    const io::Json& one = metrics.at("ranks")[static_cast<std::size_t>(rank)];
    CHECK(one.at("rank") == rank);
    CHECK(one.at("host").get<std::string>() != "");
    CHECK(one.at("device").get<std::string>().find("cpu") != std::string::npos);
    CHECK(one.at("threads") == config.threads.value());
    CHECK(one.at("peak_memory_gib") > 0);
    for (const char* field : {"communication_seconds", "hidden_seconds", "sent_bytes", "received_bytes"})
      CHECK(one.at(field).is_number());
  }
  const io::Path logs = shop.temp / "run" / "logs";
  CHECK(io::read_file(logs / "rank-1.log").find("; steps: 3 of ") != std::string::npos);
  CHECK(io::read_file(logs / "rank-2.log").find("; steps: 3 of ") != std::string::npos);
  CHECK(io::entries_of(logs).size() == 2);
  // They are the run's: another removes them, and one that a stranger wrote stands in the way.
  config.overwrite_output_dir = true;
  expect_no_error(fine_tune_by(2, config));
  CHECK(io::entries_of(logs).size() == 1);
  fine_tune(config);
  CHECK_FALSE(io::is_there(logs));
  config.output_dir = (shop.temp / "taken").native();
  io::create_folders(shop.temp / "taken" / "logs");
  io::write_file(shop.temp / "taken" / "logs" / "rank-7.log", std::string_view("mine"));
  CHECK(message_of<ConfigError>([&] { fine_tune(config); }).find("rank-7.log is in the way") != std::string::npos);
  CHECK(io::read_file(shop.temp / "taken" / "logs" / "rank-7.log") == "mine");
}

TEST_CASE("ranks: those that differ in what decides a run's bytes are told so, each of them, before any work") {
  const Quiet quiet;
  const Workshop shop;
  const auto told = [&](const std::function<void(Config&)>& change, const RunOptions& options_of_last = {}) {
    const auto errors = try_ranks(3, [&](ThreadRank& self) {
      Config config = shared_config(shop, "run");
      if (self.rank() == 2) change(config);
      RunOptions options = self.rank() == 2 ? options_of_last : RunOptions{};
      options.log = [](log::Level, std::string_view) {};
      cpu::Device dev(1);
      train::TrainingRun<cpu::Device, float> run(dev, config, inputs::open_source(config), options, &self);
      run.run();
    });
    for (const std::string& error : errors) CHECK(error == errors[0]);
    CHECK_FALSE(io::is_there(shop.temp / "run" / "run_config.json"));
    return errors[0];
  };
  CHECK(told([](Config& config) { config.seed = 5; }) ==
        concat("ranks differ in the setting seed: rank 0 has ", shop.config().seed, ", rank 2 has 5"));
  CHECK(told([](Config& config) { config.save_steps = 77; }).starts_with("ranks differ in the setting save_steps: "));
  write_tokens(shop.temp / "other.jsonl", 8, 6);
  CHECK(told([&](Config& config) {
          config.eval_dataset = {(shop.temp / "other.jsonl").native()};
        }).starts_with("ranks differ in the evaluation data: rank 0 has "));
  write_tokens(shop.temp / "more.jsonl", 48, 6);
  const std::string data = told([&](Config& config) { config.dataset = {(shop.temp / "more.jsonl").native()}; });
  CAPTURE(data);
  CHECK(data.starts_with("ranks differ in the setting "));
  RunOptions other;
  other.environment = "products: others\n";
  CHECK(told([](Config&) {}, other).starts_with("ranks differ in the build: rank 0 has "));
  // A folder of the same name on another host is another one.
  const auto errors = try_ranks(2, [&](ThreadRank& self) {
    const io::Path folder = shop.temp / concat("host ", self.rank());
    io::create_folders(folder);
    train::expect_shared(self, folder, std::chrono::seconds(0));
  });
  for (const std::string& error : errors)
    CHECK(error.starts_with("key output_dir: rank 1 does not find in " + shop.temp.path().native()));
  CHECK(io::entries_of(shop.temp / "host 0").empty());
  run_ranks(3, [&](ThreadRank& self) { train::expect_shared(self, shop.temp.path()); });
  // A host that comes to see what another has written only after a while shares the folder too.
  const io::Path late = shop.temp / "late";
  std::jthread mounts;
  run_ranks(2, [&](ThreadRank& self) {
    if (self.rank() == 1)
      mounts = std::jthread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(150));
        std::filesystem::create_directory_symlink(shop.temp.path(), late);
      });
    train::expect_shared(self, self.rank() == 0 ? shop.temp.path() : late, std::chrono::seconds(60));
  });
}

TEST_CASE(
    "ranks: a stop that one of them is told of stops all after the same step, and any number goes on from there") {
  const Quiet quiet;
  const Workshop shop;
  fine_tune(shared_config(shop, "alone"));
  const auto alone = lasting_files(shop.temp / "alone");
  for (const int told : {0, 2}) {
    CAPTURE(told);
    if (told == 0 && !effort(true, false, "ranks: a stop that the first is told of")) continue;
    const std::string output = concat("told ", told);
    std::atomic<int> stop = 0;
    const Outcome outcome = fine_tune_by(3, shared_config(shop, output), [&](int rank) {
      RunOptions options;
      if (rank != told) return options;
      options.stop = &stop;
      options.on_step = [&](const StepMetrics& metrics) { stop = metrics.step == 7 ? 15 : 0; };
      return options;
    });
    expect_no_error(outcome);
    for (const RunResult& result : outcome.results) {
      CHECK(result.stopped_by == 15);
      CHECK(result.metrics.steps == 7);
      CHECK_FALSE(result.metrics.finished);
      CHECK(result.final_model.empty());
    }
    CHECK(io::is_there(shop.temp / output / "checkpoints" / "checkpoint-7"));
    Config config = shared_config(shop, output);
    config.resume_from_checkpoint = "auto";
    const Outcome rest = fine_tune_by(2, config);
    expect_no_error(rest);
    for (const RunResult& result : rest.results) CHECK(result.metrics.resumed_from_step == 7);
    auto files = lasting_files(shop.temp / output);
    std::erase_if(files, [](const auto& file) { return file.first.starts_with("checkpoints/checkpoint-7/"); });
    expect_same(files, alone);
  }
}

TEST_CASE("ranks: a stop that one of them is told of in an evaluation ends it for all after a batch of each") {
  const Quiet quiet;
  const Workshop shop;
  write_tokens(shop.temp / "eval.jsonl", 60, 2);
  std::vector<Index> batches(3);
  run_ranks(3, [&](ThreadRank& self) {
    const Config config = shop.config();
    cpu::Device dev(1);
    const model::Source source = inputs::open_source(config);
    model::Decoder<cpu::Device, float> decoder(dev, source);
    std::atomic<int> stop = 0;
    Index& seen = batches[static_cast<std::size_t>(self.rank())];
    train::EvaluationOptions options{.stop = &stop, .ranks = &self};
    options.see = [&](const Evaluation&) {
      if (++seen == 5 && self.rank() == 1) stop = 15;
    };
    const auto example_of = [](Index) {
      data::Example example;
      example.tokens = example.labels = {1, 2, 3};
      return example;
    };
    CHECK(train::evaluate(dev, decoder, 60, example_of, options).stopped);
  });
  CHECK(batches == std::vector<Index>{6, 6, 6});  // the second round, where it was told
}

TEST_CASE("ranks: an evaluation that is interrupted on one of them is made by none, and then by the resumed run") {
  const Quiet quiet;
  const Workshop shop;
  fine_tune(shared_config(shop, "alone"));
  const auto alone = lasting_files(shop.temp / "alone");
  std::atomic<int> stop = 0;
  const Outcome outcome = fine_tune_by(3, shared_config(shop, "run"), [&](int rank) {
    RunOptions options;
    if (rank != 1) return options;
    options.stop = &stop;
    options.evaluates = [&](Running& running) {  // between the step and its evaluation
      stop = running.state().step == 8 ? 2 : 0;
      return true;
    };
    return options;
  });
  expect_no_error(outcome);
  for (const RunResult& result : outcome.results) CHECK(result.stopped_by == 2);
  CHECK(io::read_json(shop.temp / "run" / "checkpoints" / "checkpoint-8" / "trainer_state.json").at("evaluation_due"));
  Config config = shared_config(shop, "run");
  config.resume_from_checkpoint = "auto";
  expect_no_error(fine_tune_by(2, config));
  auto files = lasting_files(shop.temp / "run");
  std::erase_if(files, [](const auto& file) { return file.first.starts_with("checkpoints/checkpoint-8/"); });
  expect_same(files, alone);
}

TEST_CASE("ranks: a callback of any of them ends the run of all, or leaves an evaluation out") {
  const Quiet quiet;
  const Workshop shop;
  for (const int rank_that_acts : {0, 1}) {
    CAPTURE(rank_that_acts);
    const std::string output = concat("by ", rank_that_acts);
    const Outcome outcome = fine_tune_by(2, shared_config(shop, output), [&](int rank) {
      RunOptions options;
      if (rank != rank_that_acts) return options;
      options.on_step = [](const StepMetrics& metrics, Running& running) {
        if (metrics.step == 10) running.finish();
        CHECK(running.is_distributed());
        CHECK(running.size() == 2);
      };
      options.evaluates = [](Running& running) { return running.state().step != 4; };
      return options;
    });
    expect_no_error(outcome);
    for (const RunResult& result : outcome.results) {
      CHECK(result.stopped_by == 0);
      CHECK(result.metrics.steps == 10);
      CHECK(result.metrics.ended_early == "the program");
    }
    std::vector<Index> evaluated;
    for (const io::Json& line : log_of(shop.temp / output))
      if (line.contains("eval_loss")) evaluated.push_back(line.at("step"));
    CHECK(evaluated == std::vector<Index>{8, 10});
  }
}

TEST_CASE("ranks: an error of one ends all, and the others say whose it was") {
  const Quiet quiet;
  const Workshop shop;
  const Config config = shared_config(shop, "run");
  for (const int failing : {0, 1}) {
    CAPTURE(failing);
    std::filesystem::remove_all(config.output_dir);
    const Outcome outcome = fine_tune_by(3, config, [&](int rank) {
      RunOptions options;
      if (rank == failing)
        options.on_step = [](const StepMetrics& metrics) {
          if (metrics.step == 5) fail<Error>("the callback fails");
        };
      return options;
    });
    for (int rank = 0; rank < 3; ++rank)
      CHECK(outcome.errors[static_cast<std::size_t>(rank)] ==
            (rank == failing ? "the callback fails" : concat("rank ", failing, " failed: the callback fails")));
    CHECK(io::is_there(shop.temp / "run" / "checkpoints" / "checkpoint-3"));
    CHECK_FALSE(io::is_there(shop.temp / "run" / "final_model"));
  }
}

TEST_CASE("ranks: a loss that is not finite fails on all, or is skipped by all") {
  const Quiet quiet;
  const Workshop shop;
  for (const bool skips : {false, true}) {
    CAPTURE(skips);
    const auto config_of = [&](const std::string& output) {
      Config config = shared_config(shop, concat(output, skips));
      config.learning_rate = 1e30;
      config.warmup_steps = 0;
      config.max_grad_norm = 0;
      config.max_steps = 4;
      config.on_non_finite = skips ? "skip" : "stop";
      return config;
    };
    const std::string what = "step 2: ";
    const auto fails_as_it_should = [&](const std::string& error) {
      return skips ? error.empty() : error.starts_with(what);
    };
    CHECK(fails_as_it_should(skips ? (fine_tune(config_of("alone ")), "")
                                   : message_of<Error>([&] { fine_tune(config_of("alone ")); })));
    for (const std::string& error : fine_tune_by(2, config_of("run ")).errors) {
      CAPTURE(error);
      CHECK(fails_as_it_should(error));
    }
    CHECK(numbers_of(shop.temp / concat("run ", skips)) == numbers_of(shop.temp / concat("alone ", skips)));
  }
}

TEST_CASE("ranks: more of them than a step has units are refused by each") {
  const Quiet quiet;
  const Workshop shop;
  Config config = shared_config(shop, "run");
  config.step_units = 2;
  for (const std::string& error : fine_tune_by(3, config).errors)
    CHECK(error == "a step of 2 units can't be shared by 3 ranks; every rank needs one");
  CHECK_FALSE(io::is_there(shop.temp / "run"));
}

}  // namespace ranks_test
