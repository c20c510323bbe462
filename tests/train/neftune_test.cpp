// NEFTune as a run; its numbers beside transformers' are in model/golden_test.cpp.

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "support/message_of.hpp"
#include "support/quiet.hpp"
#include "support/workshop.hpp"

namespace neftune_test {

using namespace lora;
using namespace lora::test;

namespace {

struct Outcome {
  double first_evaluation, first_loss;
  std::vector<float> adapter;
};

Outcome outcome_of(Config config) {
  config.eval_on_start = true;
  config.logging_steps = 1;
  config.max_steps = 2;
  fine_tune(config);
  Outcome result{NAN, NAN, adapter_values(io::Path(config.output_dir) / "final_model")};
  for (const io::Json& line : log_of(config.output_dir)) {
    if (line.at("step") == 0) result.first_evaluation = line.at("eval_loss");
    if (line.at("step") == 1 && line.contains("loss")) result.first_loss = line.at("loss");
  }
  return result;
}

}  // namespace

TEST_CASE("NEFTune: training sees the noise, however a step is split, and evaluation doesn't") {
  const Quiet quiet;
  const Workshop shop;
  Config config = shop.config("plain");
  config.lora_dropout = 0;
  const Outcome plain = outcome_of(config);
  config.neftune_noise_alpha = 5;
  config.output_dir = (shop.temp / "noisy").native();
  const Outcome noisy = outcome_of(config);
  CHECK(noisy.first_evaluation == plain.first_evaluation);
  CHECK(std::fabs(noisy.first_loss - plain.first_loss) > 1e-3);
  CHECK(noisy.adapter != plain.adapter);
  config.max_tokens_per_micro_batch = 1;  // each sequence alone
  config.output_dir = (shop.temp / "split").native();
  const Outcome split = outcome_of(config);
  // Sums of some ten numbers in another order.
  CHECK(std::fabs(split.first_loss - noisy.first_loss) <= 16 * 0x1p-24 * noisy.first_loss);
  config.seed = 43;
  config.output_dir = (shop.temp / "other").native();
  CHECK(outcome_of(config).adapter != split.adapter);
}

TEST_CASE("NEFTune: the noise may not change on resume") {
  const Quiet quiet;
  const Workshop shop;
  Config config = shop.config();
  config.neftune_noise_alpha = 5;
  fine_tune(config);
  config.resume_from_checkpoint = "auto";
  config.neftune_noise_alpha.reset();
  CHECK(message_of<ConfigError>([&] { fine_tune(config); }).starts_with("key neftune_noise_alpha: "));
  config.neftune_noise_alpha = 4;
  CHECK(message_of<ConfigError>([&] { fine_tune(config); }).starts_with("key neftune_noise_alpha: given 4"));
}

}  // namespace neftune_test
