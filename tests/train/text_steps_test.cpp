// Training all weights on a text, from text file, tokenizer and random weights to losses, beside transformers.

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <string>
#include <vector>

#include "support/effort.hpp"
#include "support/quiet.hpp"
#include "support/reference_training.hpp"
#include "support/workshop.hpp"

namespace text_steps_test {

using namespace lora;
using namespace lora::test;

TEST_CASE("text: the first 20 steps from random weights have transformers' losses and gradient norms") {
  const Quiet quiet;
  const TempFolder temp = TempFolder::in_memory();
  const io::Path fixture = io::Path(LORA_FIXTURES) / "stories";
  const io::Json expected = io::read_json(fixture / "steps.json");
  const io::Json& training = expected.at("training");
  CHECK(expected.at("long_lines").get<int>() > 10);  // those that become blocks
  Config config;
  config.model_name_or_path = fixture.native();
  config.dataset = {(fixture / "text.txt").native()};
  config.output_dir = (temp / "run").native();
  config.dtype = "float32";
  config.finetuning_type = "full";
  config.cutoff_len = expected.at("cutoff_len");
  take_training(config, training);
  config.logging_steps = 1;
  const std::size_t count = effort<std::size_t>(20, 2, "text: steps 3 to 20");
  std::atomic<int> stop{0};
  RunOptions options;
  options.stop = &stop;
  options.on_step = [&](const StepMetrics& metrics) { stop = metrics.step == static_cast<Index>(count) ? SIGTERM : 0; };
  fine_tune(config, options);
  const io::Json& steps = expected.at("steps");
  std::size_t step = 0;
  double worst_loss = 0, worst_norm = 0;
  for (const io::Json& line : log_of(temp / "run")) {
    CAPTURE(step);
    const io::Json& reference = steps.at(step++);
    CHECK(line.at("labelled_tokens") == reference.at("labeled"));
    const double loss = reference.at("loss"), norm = reference.at("grad_norm");
    worst_loss = std::max(worst_loss, std::fabs(line.at("loss").get<double>() - loss) / loss);
    worst_norm = std::max(worst_norm, std::fabs(line.at("grad_norm").get<double>() - norm) / norm);
  }
  CHECK(step == count);
  // The bounds of ten steps in golden_test, float32 beside float64.
  CHECK(worst_loss < 2e-6);
  CHECK(worst_norm < 2e-5);
}

}  // namespace text_steps_test
