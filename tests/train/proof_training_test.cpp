// A whole training run, from settings to files, on a device that is not the CPU.

#include <doctest/doctest.h>

#include <atomic>

#include "support/proof_kernels.hpp"
#include "support/quiet.hpp"
#include "support/workshop.hpp"

namespace proof_training_test {

using namespace lora;
using namespace lora::test;

TEST_CASE("proof training: a whole run on another device writes the files of the CPU's") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config("cpu");
  config.max_steps = 5;
  config.step_units = 2;
  fine_tune(config);
  config.output_dir = (shop.temp / "proof").native();
  proof::Device dev(1, {.late_sources = true});
  for (const Index steps : {3, 5}) {
    config.max_steps = 5;
    std::atomic<int> stop{0};
    RunOptions options;
    options.stop = &stop;
    options.on_step = [&](const StepMetrics& step) { stop = step.step == steps && steps < 5; };
    train::TrainingRun<proof::Device, float> run(dev, config, inputs::open_source(config), options);
    CHECK(run.run().metrics.steps == steps);
    config.resume_from_checkpoint = "auto";
  }
  auto cpu = lasting_files(shop.temp / "cpu"), proof = lasting_files(shop.temp / "proof");
  proof.erase("checkpoints/checkpoint-3/trainer_state.json");  // of a run that was stopped there
  cpu.erase("checkpoints/checkpoint-3/trainer_state.json");
  expect_same(proof, cpu);
}

}  // namespace proof_training_test
