// Runs in float16: their losses beside float32's, and the loss scale.

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <string>
#include <vector>

#include "support/effort.hpp"
#include "support/message_of.hpp"
#include "support/quiet.hpp"
#include "support/workshop.hpp"

namespace float16_test {

using namespace lora;
using namespace lora::test;

namespace {

/// Records of which one token alone is labeled: at a scale of 65536 their gradient overflows in float16.
void write_single_labels(const io::Path& path) {
  std::string text;
  for (int record = 0; record < 12; ++record) {
    std::vector<int> ids, labels(6, -100);
    for (int j = 0; j < 6; ++j) ids.push_back((7 * record + 11 * j) % 61);
    labels[4] = ids[4];
    text += io::to_text(io::Json{{"input_ids", ids}, {"labels", labels}}, -1) + "\n";
  }
  io::write_file(path, std::string_view(text));
}

Config overflowing(const Workshop& shop, const std::string& output) {
  write_single_labels(shop.temp / "single.jsonl");
  Config config = shop.config(output);
  config.dataset = {(shop.temp / "single.jsonl").native()};
  config.dtype = "float16";
  config.per_device_train_batch_size = 1;
  config.gradient_accumulation_steps = 1;
  config.max_steps = 12;
  config.logging_steps = 1;
  return config;
}

std::vector<double> column(const io::Path& run, const char* name) {
  std::vector<double> values;
  for (const io::Json& line : log_of(run))
    if (line.contains(name) && !line.at(name).is_null()) values.push_back(line.at(name));
  return values;
}

}  // namespace

TEST_CASE("float16: 200 steps have float32's losses to 1 %") {
  if (!test::effort(true, false, "float16: 200 steps")) return;
  const Quiet quiet;
  const Workshop shop;
  std::vector<std::vector<double>> losses, norms;
  for (const char* dtype : {"float32", "float16"}) {
    Config config = shop.config(dtype);
    config.dtype = dtype;
    config.max_steps = 200;
    config.logging_steps = 1;
    config.learning_rate = 2e-3;
    fine_tune(config);
    losses.push_back(column(config.output_dir, "loss"));
    norms.push_back(column(config.output_dir, "grad_norm"));
  }
  REQUIRE(losses[0].size() == 200);
  REQUIRE(losses[1].size() == 200);
  // Without the loss scale, at weights that have drifted apart a little.
  CHECK(std::fabs(norms[1].back() - norms[0].back()) <= 0.25 * norms[0].back());
  bool differ = false;
  for (std::size_t i = 0; i < 200; ++i) {
    CAPTURE(i);
    CHECK(std::fabs(losses[1][i] - losses[0][i]) <= 0.01 * losses[0][i]);
    differ = differ || losses[1][i] != losses[0][i];
  }
  CHECK(differ);
  CHECK(losses[0].back() < losses[0].front());
}

TEST_CASE("float16: a step whose gradient overflows changes nothing, and halves the loss scale") {
  Quiet quiet;
  const Workshop shop;
  const Config config = overflowing(shop, "run");
  Index updates = 0, number = 0;
  std::vector<bool> skipped;
  RunOptions options;
  options.on_step = [&](const run::StepMetrics& metrics, Running&) {
    skipped.push_back(metrics.skipped);
    ++number;
    updates += metrics.skipped ? 0 : 1;
  };
  fine_tune(config, std::move(options));
  CHECK(number == 12);
  CHECK(skipped.front());
  CHECK(quiet.said("step 1: the gradient overflows at loss scale 65536; the step is skipped, and the scale halves\n"));
  CHECK_FALSE(skipped.back());
  const std::vector<double> scales = column(config.output_dir, "loss_scale");
  REQUIRE(scales.size() == 12);
  double scale = 65536;
  for (std::size_t i = 0; i < 12; ++i) {
    CAPTURE(i);
    CHECK(scales[i] == scale);
    if (skipped[i]) scale /= 2;
  }
  const io::Path checkpoint = shop.temp / "run" / "checkpoints" / "checkpoint-12";
  const io::Json state = io::read_json(checkpoint / "trainer_state.json");
  CHECK(state.at("loss_scale") == scale);
  CHECK(state.at("updates") == updates);
  Index since = 0;
  for (std::size_t i = 12; i > 0 && !skipped[i - 1]; --i) ++since;
  CHECK(state.at("steps_at_loss_scale") == since);
  const auto events = events_of(shop.temp / "run");
  CHECK(std::any_of(events.begin(), events.end(),
                    [](const std::string& line) { return line.find("train/loss_scale") != line.npos; }));
}

TEST_CASE("float16: a resumed run goes on with its loss scale, to the same bytes") {
  const Quiet quiet;
  const Workshop shop;
  fine_tune(overflowing(shop, "whole"));
  for (const Index stop_after : {1, 5, 11}) {
    CAPTURE(stop_after);
    Config config = overflowing(shop, concat("stopped-", stop_after));
    std::atomic<int> stop{0};
    RunOptions options;
    options.stop = &stop;
    options.on_step = [&](const run::StepMetrics& metrics, Running&) {
      if (metrics.step == stop_after) stop = 2;
    };
    CHECK(fine_tune(config, std::move(options)).stopped_by == 2);
    config.resume_from_checkpoint = "auto";
    fine_tune(config);
    CHECK(numbers_of(config.output_dir) == numbers_of(shop.temp / "whole"));
    const auto state_of = [&](const io::Path& run) {
      return io::read_json(run / "checkpoints" / "checkpoint-12" / "trainer_state.json");
    };
    for (const char* field : {"loss_scale", "steps_at_loss_scale", "updates"})
      CHECK(state_of(config.output_dir).at(field) == state_of(shop.temp / "whole").at(field));
    CHECK(adapter_values(io::Path(config.output_dir) / "final_model") ==
          adapter_values(shop.temp / "whole" / "final_model"));
  }
}

TEST_CASE("float16: a run in which every step overflows says so, and has no result") {
  const Quiet quiet;
  const Workshop shop;
  Config config = overflowing(shop, "run");
  config.max_steps = 1;
  CHECK(message_of<Error>([&] { fine_tune(config); }) ==
        "no step had a finite gradient at a loss scale from 65536 down to 32768: nothing was learned, and no "
        "final_model is written");
  CHECK_FALSE(io::is_there(io::Path(config.output_dir) / "final_model"));
  config.resume_from_checkpoint = "auto";  // the checkpoint knows why
  CHECK(message_of<Error>([&] { fine_tune(config); }).starts_with("no step had a finite gradient at a loss scale"));
}

TEST_CASE("float16: a gradient that overflows without a loss scale too ends the run as one that is not finite") {
  const Quiet quiet;
  const Workshop shop;
  // RMSNorm of zeros multiplies gradients by 1 / sqrt(eps), and the head those of the logits, which are all 0.
  auto tensors = random_tensors({});
  for (auto& tensor : tensors)
    for (double& value : tensor.values) {
      if (tensor.name == "model.embed_tokens.weight") value = 0;
      if (tensor.name == "lm_head.weight") value *= 1e4;
    }
  write_model(shop.temp / "model", config_json({}), tensors, DType::f32);
  Config config = overflowing(shop, "run");
  config.eval_dataset.clear();
  config.eval_steps.reset();
  config.max_steps = 20;
  const std::string message = message_of<Error>([&] { fine_tune(config); });
  CAPTURE(message);
  CHECK(message.starts_with("step 17: "));  // behind 16 halvings
  CHECK(holds(message, "; float16 ends at 65504, dtype bfloat16 and float32 don't"));
}

TEST_CASE("float16: a resumed run keeps its type") {
  const Quiet quiet;
  const Workshop shop;
  Config config = overflowing(shop, "run");
  fine_tune(config);
  config.resume_from_checkpoint = "auto";
  config.dtype = "float32";
  CHECK(message_of<ConfigError>([&] { fine_tune(config); }).starts_with("key dtype: given \"float32\""));
}

TEST_CASE("float16: a whole model trains, and its folder holds float16") {
  const Quiet quiet;
  const Workshop shop;
  Config config = shop.config("run");
  config.dtype = "float16";
  config.finetuning_type = "full";
  config.lora_rank = Config().lora_rank;
  config.lora_dropout = 0;
  config.learning_rate = 1e-3;
  const RunResult result = fine_tune(config);
  const auto file = io::Safetensors::open(result.final_model / "model.safetensors");
  for (const auto& tensor : file.tensors()) CHECK(tensor.dtype == DType::f16);
  CHECK(io::read_json(result.final_model / "config.json").at("torch_dtype") == "float16");
  const auto losses = column(config.output_dir, "mean_loss");
  CHECK(losses.back() < losses.front());
}

}  // namespace float16_test
