// What a program can do with a run in its callbacks.

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "lora/decode/generate.hpp"
#include "support/quiet.hpp"
#include "support/workshop.hpp"

namespace callbacks_test {

using namespace lora;
using namespace lora::test;

namespace {

std::vector<Index> evaluated_steps(const io::Path& run) {
  std::vector<Index> steps;
  for (const io::Json& line : log_of(run))
    if (line.contains("eval_loss")) steps.push_back(line["step"].get<Index>());
  return steps;
}

}  // namespace

TEST_CASE("callbacks: one that finishes the run leaves a whole run, which stays ended when it is resumed") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  RunOptions options;
  options.on_step = [](const StepMetrics& step, Running& running) {
    CHECK(running.state().step == step.step);
    CHECK(running.total_steps() == 24);
    if (step.step == 5) running.finish();
  };
  const auto result = fine_tune(config, options);
  CHECK(result.stopped_by == 0);
  CHECK(result.metrics.steps == 5);
  CHECK(!result.final_model.empty());
  CHECK(evaluated_steps(shop.temp / "run") == std::vector<Index>{4, 5});
  const run::Checkpoints checkpoints(shop.temp / "run");
  CHECK(run::Checkpoints::open(checkpoints.folder_of(5)).state.ended_early);

  const auto files = lasting_files(shop.temp / "run");
  config.resume_from_checkpoint = "auto";
  CHECK(fine_tune(config).metrics.steps == 5);
  expect_same(lasting_files(shop.temp / "run"), files);
  // An interruption before final_model was there is made up for.
  std::filesystem::remove_all(shop.temp / "run" / "final_model");
  CHECK(fine_tune(config).metrics.steps == 5);
  expect_same(lasting_files(shop.temp / "run"), files);
}

TEST_CASE("callbacks: an evaluation may be the end, and finishing after the last step is no early end") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  RunOptions options;
  options.on_evaluation = [](const Evaluation& metrics, Running& running) {
    CHECK(running.state().last_eval_loss == metrics.loss());
    if (metrics.step == 8) running.finish();
  };
  CHECK(fine_tune(config, options).metrics.steps == 8);
  CHECK(evaluated_steps(shop.temp / "run") == std::vector<Index>{4, 8});

  config.output_dir = (shop.temp / "all").native();
  config.max_steps = 2;
  options.on_evaluation = {};
  options.on_step = [](const StepMetrics&, Running& running) {
    if (running.state().step == running.total_steps()) running.finish();
  };
  fine_tune(config, options);
  CHECK_FALSE(run::Checkpoints::open(run::Checkpoints(shop.temp / "all").folder_of(2)).state.ended_early);
  config.max_steps = 3;
  config.resume_from_checkpoint = "auto";
  CHECK(fine_tune(config).metrics.steps == 3);
}

TEST_CASE("callbacks: evaluations can be left out") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  config.max_steps = 13;
  RunOptions options;
  std::vector<Index> asked;
  options.evaluates = [&](Running& running) {
    asked.push_back(running.state().step);
    return running.state().step != 8;
  };
  fine_tune(config, options);
  CHECK(asked == std::vector<Index>{4, 8, 12, 13});
  CHECK(evaluated_steps(shop.temp / "run") == std::vector<Index>{4, 12, 13});
}

TEST_CASE("callbacks: the state counts evaluations since the best") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  config.learning_rate = 0.2;  // or every evaluation would be the best
  config.eval_steps = 1;
  config.max_steps = 9;
  std::vector<double> losses;
  RunOptions options;
  Index since = 0, most = 0;
  double best = 1e9;
  options.on_evaluation = [&](const Evaluation& metrics, Running& running) {
    since = metrics.loss() < best ? 0 : since + 1;
    best = std::min(best, metrics.loss());
    most = std::max(most, since);
    CHECK(running.state().evaluations_without_improvement == since);
  };
  config.max_steps = 5;
  fine_tune(config, options);
  config.max_steps = 9;
  config.resume_from_checkpoint = "auto";
  fine_tune(config, options);
  CHECK(most > 0);
}

TEST_CASE("callbacks: the model is at hand, and using it changes no bit of the run") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  config.max_steps = 6;
  fine_tune(config);
  auto used = shop.config("used");
  used.max_steps = 6;
  RunOptions options;
  std::vector<std::vector<std::int32_t>> answers;
  double evaluated = 0, logged = 0;
  options.on_step = [&](const StepMetrics&, Running& running) {
    CHECK(running.model<cpu::Device, bf16>() == nullptr);
    CHECK(running.text().tokenizer == nullptr);
    const auto* model = running.model<cpu::Device, float>();
    REQUIRE(model != nullptr);
    const std::vector<std::vector<std::int32_t>> prompts{{3, 7, 12}};
    answers.push_back(decode::generate(model->dev, model->decoder, std::span(prompts), {.max_new_tokens = 4}).front());
  };
  options.on_evaluation = [&](const Evaluation& metrics, Running& running) {
    auto dataset = data::Dataset::open(used.eval_dataset);
    const auto records = inputs::encoded_records(used, std::move(dataset), running.text(), 61, false);
    with_model(running, [&](auto& dev, auto& decoder) {
      evaluated = train::evaluate(dev, decoder, records.size(), [&](Index i) { return records[i]; },
                                  {.batch = 8, .window = 2048})
                      .loss();
    });
    logged = metrics.loss();
  };
  fine_tune(used, options);
  CHECK(answers.size() == 6);
  CHECK(answers.front().size() == 4);
  CHECK(evaluated == logged);
  CHECK(logged > 0);
  expect_same(lasting_files(shop.temp / "used"), lasting_files(shop.temp / "run"));
}

TEST_CASE("callbacks: tensors that are told not to train keep their first values, in a resumed run too") {
  const Quiet quiet;
  const Workshop shop;
  RunOptions options;
  options.trains = [](std::string_view name) { return name.find("layers.1.") != name.npos; };
  auto config = shop.config("whole");
  config.max_steps = 6;
  fine_tune(config, options);
  config.output_dir = (shop.temp / "run").native();
  config.max_steps = 3;
  fine_tune(config, options);
  config.max_steps = 6;
  config.resume_from_checkpoint = "auto";
  CHECK(fine_tune(config, options).metrics.resumed_from_step == 3);
  // The schedule of the first three steps was a shorter one's; what did not train is what it was.
  const auto file = io::Safetensors::open(shop.temp / "run" / "final_model" / "adapter_model.safetensors");
  Index frozen = 0, trained = 0;
  for (const auto& tensor : file.tensors()) {
    if (tensor.name.find("lora_B") == tensor.name.npos) continue;
    const bool zero =
        std::all_of(tensor.bytes.begin(), tensor.bytes.end(), [](std::byte b) { return b == std::byte{0}; });
    const bool first = tensor.name.find("layers.0.") != tensor.name.npos;
    CHECK(zero == first);
    (zero ? frozen : trained) += 1;
  }
  CHECK(frozen == trained);
  CHECK_THROWS_WITH_AS(fine_tune([&] {
                         auto other = config;
                         other.max_steps = 7;
                         return other;
                       }()),
                       doctest::Contains("key trains: given \"all\", but "), ConfigError);
  RunOptions turned;
  turned.trains = [](std::string_view name) { return name.find("layers.0.") != name.npos; };
  config.max_steps = 7;
  CHECK_THROWS_WITH_AS(fine_tune(config, turned), doctest::Contains("key trains: given "), ConfigError);
}

}  // namespace callbacks_test
