// A whole training run, from settings to files, on a device that is not the CPU.

#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "lora/io/formats/json.hpp"
#include "support/instantiate.hpp"
#include "support/quiet.hpp"
#include "support/thread_ranks.hpp"
#include "support/workshop.hpp"

namespace proof_training_test {

using namespace lora;
using namespace lora::test;

namespace {

/// Takes from a state what it notes on processors alone: one in `had`, and the checksum of all.
void forget_threads(std::map<std::string, std::string>& files, std::size_t had, Index step = 5) {
  std::string& text = files.at(concat("checkpoints/checkpoint-", step, "/trainer_state.json"));
  io::Json state = io::parse_json(text, "trainer_state.json");
  CHECK(state.erase("threads") == had);
  CHECK(state.erase("checksum") == 1);
  text = io::to_text(state);
}

/// A run of five steps that is stopped after the third and resumed, each part with its own offload.
std::map<std::string, std::string> files_of(const Workshop& shop, Config config, const std::string& name,
                                            const char* first, const char* then) {
  config.output_dir = (shop.temp / name).native();
  proof::Device dev(1, {.late_sources = true});
  for (const Index steps : {3, 5}) {
    std::atomic<int> stop{0};
    RunOptions options;
    options.stop = &stop;
    options.on_step = [&](const StepMetrics& step) { stop = step.step == steps && steps < 5; };
    config.offload = steps == 3 ? first : then;
    train::TrainingRun<proof::Device, float> run(dev, config, inputs::open_source(config), options);
    CHECK(run.run().metrics.steps == steps);
    config.resume_from_checkpoint = "auto";
  }
  auto files = lasting_files(shop.temp / name);
  files.erase("checkpoints/checkpoint-3/trainer_state.json");  // of a run that was stopped there
  forget_threads(files, 0);
  return files;
}

}  // namespace

TEST_CASE(
    "proof training: a whole run on another device writes the files of the CPU's, wherever weights and state lie") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config("cpu");
  config.max_steps = 5;
  config.step_units = 2;
  fine_tune(config);
  auto cpu = lasting_files(shop.temp / "cpu");
  cpu.erase("checkpoints/checkpoint-3/trainer_state.json");
  forget_threads(cpu, 1);
  expect_same(files_of(shop, config, "proof", "none", "none"), cpu);
  CHECK_FALSE(quiet.said("offload: "));
  expect_same(files_of(shop, config, "first", "all", "none"), cpu);
  CHECK(quiet.said("offload: the layers, "));
  CHECK(quiet.said(" of page-locked memory that holds all of them"));
  expect_same(files_of(shop, config, "second", "optimizer", "params"), cpu);
}

TEST_CASE("proof training: ranks that share out what trains change it between stages as one process does") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config("cpu");
  config.finetuning_type = "full";
  config.lora_rank.reset();
  config.lora_dropout = 0;
  config.step_units = 2;
  config.num_train_epochs = 3;
  config.stages = {{.until_step = 2, .trainable = {{R"(layers\.1\.)"}}},
                   {.until_step = 4, .trainable = {{"embed_tokens", R"(layers\.0\.)"}}},
                   {.until_step = 5}};
  fine_tune(config);
  auto cpu = lasting_files(shop.temp / "cpu");
  for (const Index step : {3, 5}) forget_threads(cpu, 1, step);
  config.output_dir = (shop.temp / "ranks").native();
  config.zero_stage = 3;
  run_ranks<proof::Device>(2, [&](auto& self) {
    proof::Device dev(1, {.late_sources = true});
    RunOptions options;
    options.log = [](log::Level, std::string_view) {};
    train::TrainingRun<proof::Device, float>(dev, config, inputs::open_source(config), options, &self).run();
  });
  auto files = lasting_files(shop.temp / "ranks");
  for (const Index step : {3, 5}) forget_threads(files, 0, step);
  expect_same(files, cpu);
}

TEST_CASE("proof training: what a checkpoint of processors has of threads is not kept on another device") {
  const Quiet quiet;
  const Workshop shop;
  Config config = shop.config("run");
  config.step_units = 2;
  config.max_steps = 2;
  fine_tune(config);
  const run::Checkpoints checkpoints(shop.temp / "run");
  CHECK(checkpoints.newest()->state.threads == 1);
  config.resume_from_checkpoint = "auto";
  config.max_steps = 4;
  proof::Device dev;
  train::TrainingRun<proof::Device, float> run(dev, config, inputs::open_source(config), {});
  CHECK(run.run().metrics.steps == 4);
  CHECK(checkpoints.newest()->state.threads == 0);
  CHECK_FALSE(quiet.said("the steps so far ran on"));
}

}  // namespace proof_training_test
