#include <doctest/doctest.h>

#include <atomic>
#include <vector>

#include "support/quiet.hpp"
#include "support/workshop.hpp"

namespace mean_loss_test {

using namespace lora;
using namespace lora::test;

namespace {

/// A field of the log's training lines.
std::vector<double> logged(const io::Path& run, const char* field) {
  std::vector<double> values;
  for (const auto& line : log_of(run))
    if (line.contains("loss")) values.push_back(line.at(field).get<double>());
  return values;
}

double mean(const std::vector<double>& values, std::size_t begin, std::size_t end) {
  double sum = 0;
  for (std::size_t i = begin; i < end; ++i) sum += values[i];
  return sum / static_cast<double>(end - begin);
}

/// Trains until step `last`, where the run is told to stop.
void train_until(const Config& config, Index last) {
  std::atomic<int> stop{0};
  RunOptions options;
  options.stop = &stop;
  options.on_step = [&](const StepMetrics& metrics) {
    if (metrics.step == last) stop = 15;
  };
  CHECK(fine_tune(config, options).stopped_by == 15);
}

}  // namespace

TEST_CASE("mean_loss: a line has the mean of the steps since the line before, and the run's file that of all") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config("each");
  config.logging_steps = 1;
  fine_tune(config);
  const auto losses = logged(shop.temp / "each", "loss");
  CHECK(logged(shop.temp / "each", "mean_loss") == losses);
  REQUIRE(losses.size() == 24);

  config = shop.config("fifth");
  config.logging_steps = 5;
  fine_tune(config);
  CHECK(logged(shop.temp / "fifth", "loss") == std::vector{losses[4], losses[9], losses[14], losses[19], losses[23]});
  CHECK(logged(shop.temp / "fifth", "mean_loss") == std::vector{mean(losses, 0, 5), mean(losses, 5, 10),
                                                                mean(losses, 10, 15), mean(losses, 15, 20),
                                                                mean(losses, 20, 24)});
  const io::Json metrics = io::read_json(shop.temp / "fifth" / "training_metrics.json");
  CHECK(metrics.at("train_loss").get<double>() == losses[23]);
  CHECK(metrics.at("mean_train_loss").get<double>() == mean(losses, 0, 24));
}

TEST_CASE("mean_loss: a resume goes on with both means, and a checkpoint without them begins anew") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config("whole");
  config.logging_steps = 5;
  fine_tune(config);
  config.output_dir = (shop.temp / "parts").native();
  train_until(config, 9);  // a checkpoint that the other run has too, in the middle of a line
  config.resume_from_checkpoint = "auto";
  fine_tune(config);
  expect_same(lasting_files(shop.temp / "whole"), lasting_files(shop.temp / "parts"));
  const auto mean_of = [&](const char* run) {
    return io::read_json(shop.temp / run / "training_metrics.json").at("mean_train_loss").get<double>();
  };
  CHECK(mean_of("whole") == mean_of("parts"));

  io::Json state = run::detail::to_json(run::RunState{});
  state.erase("losses");
  state.erase("losses_since_line");
  CHECK(run::detail::parse_state({state, "state"}).losses.steps == 0);
}

TEST_CASE("mean_loss: a finished run that is started again says that it is finished") {
  Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  fine_tune(config);
  CHECK_FALSE(quiet.said("the run is finished"));
  config.resume_from_checkpoint = "auto";
  fine_tune(config);
  CHECK(quiet.said("nothing to do: the run is finished, step 24 of 24; the adapter is in "));
}

TEST_CASE("mean_loss: max_eval_samples evaluates so many records while training") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config("few");
  config.max_steps = 1;
  config.max_eval_samples = 2;
  fine_tune(config);
  const std::string all = io::read_file(shop.temp / "eval.jsonl");
  const auto end = all.find('\n', all.find('\n') + 1) + 1;
  io::write_file(shop.temp / "two.jsonl", std::string_view(all).substr(0, end));
  config.output_dir = (shop.temp / "two").native();
  config.max_eval_samples.reset();
  config.eval_dataset = {(shop.temp / "two.jsonl").native()};
  fine_tune(config);
  const auto eval_loss = [&](const char* run) { return log_of(shop.temp / run).back().at("eval_loss").get<double>(); };
  CHECK(eval_loss("few") == eval_loss("two"));

  config.eval_dataset.clear();
  config.val_size = 6;
  config.output_dir = (shop.temp / "six").native();
  fine_tune(config);
  config.max_eval_samples = 2;
  config.output_dir = (shop.temp / "two_of_six").native();
  fine_tune(config);
  CHECK(logged(shop.temp / "six", "loss") == logged(shop.temp / "two_of_six", "loss"));
  CHECK(eval_loss("six") != eval_loss("two_of_six"));
}

TEST_CASE("mean_loss: an adapter is found by its run's folder") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  config.max_steps = 1;
  fine_tune(config);
  const io::Path run = shop.temp / "run";
  CHECK(inputs::find_adapter(run.native()) == run / "final_model");
  CHECK(inputs::find_adapter((run / "final_model").native()) == run / "final_model");
  config.adapter_name_or_path = run.native();
  config.output_dir = (shop.temp / "next").native();
  fine_tune(config);
  CHECK(std::filesystem::exists(shop.temp / "next" / "final_model" / "adapter_config.json"));
}

}  // namespace mean_loss_test
