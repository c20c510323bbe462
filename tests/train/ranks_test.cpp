// Runs that several ranks make together: threads of this process, each with a device and a model of its own.

#include <doctest/doctest.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "lora/inputs/device.hpp"
#include "lora/train/trainer.hpp"
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
};

template <class T = float>
Outcome fine_tune_by(int ranks, const Config& config, const Options& options_of = {}) {
  Outcome outcome;
  outcome.results.resize(static_cast<std::size_t>(ranks));
  outcome.said.resize(static_cast<std::size_t>(ranks));
  outcome.errors = try_ranks(ranks, [&](ThreadRank& self) {
    const auto at = static_cast<std::size_t>(self.rank());
    RunOptions options = options_of ? options_of(self.rank()) : RunOptions{};
    options.log = [&, at](log::Level, std::string_view text) { outcome.said[at] += concat(text, "\n"); };
    cpu::Device dev(1);
    train::TrainingRun<cpu::Device, T> run(dev, config, inputs::open_source(config), options, &self);
    outcome.results[at] = run.run();
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

}  // namespace

TEST_CASE("ranks: any number of them writes the bytes that one process writes, and only the first writes") {
  const Quiet quiet;
  const Workshop shop;
  fine_tune(shared_config(shop, "alone"));
  const auto alone = lasting_files(shop.temp / "alone");
  for (const int ranks : {1, 2, 3, 4}) {
    CAPTURE(ranks);
    const std::string output = concat("by ", ranks);
    const Outcome outcome = fine_tune_by(ranks, shared_config(shop, output));
    expect_no_error(outcome);
    expect_same(lasting_files(shop.temp / output), alone);
    CHECK(events_of(shop.temp / output) == events_of(shop.temp / "alone"));
    for (const RunResult& result : outcome.results) {
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
    for (const char* field : {"tokens_per_second", "peak_memory_gib", "seconds"}) metrics.erase(field);
    return metrics;
  };
  CHECK(metrics_of("alone").at("stages").size() == 3);
  CHECK(metrics_of("alone").at("ended_early") == "early_stopping_patience");
  for (const int ranks : {2, 3}) {
    CAPTURE(ranks);
    const std::string output = concat("by ", ranks);
    expect_no_error(fine_tune_by(ranks, config_of(output)));
    expect_same(lasting_files(shop.temp / output), alone);
    CHECK(metrics_of(output) == metrics_of("alone"));
  }
}

TEST_CASE(
    "ranks: a stop that one of them is told of stops all after the same step, and any number goes on from there") {
  const Quiet quiet;
  const Workshop shop;
  fine_tune(shared_config(shop, "alone"));
  const auto alone = lasting_files(shop.temp / "alone");
  for (const int told : {0, 2}) {
    CAPTURE(told);
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
