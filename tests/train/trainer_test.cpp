#include "lora/trainer.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/effort.hpp"
#include "support/message_of.hpp"
#include "support/quiet.hpp"
#include "support/random_model.hpp"
#include "support/random_tokens.hpp"
#include "support/workshop.hpp"

namespace trainer_test {

using namespace lora;
using namespace lora::test;

namespace {

/// How far two runs of the same data are apart: the farthest of their logged losses, and their adapters.
struct Distance {
  double loss = 0, adapter = 0;  ///< relative; the adapter's in its norm

  Distance() = default;
  Distance(const RunResult& a, const RunResult& b) {
    const auto log = log_of(a.final_model.parent_path()), other = log_of(b.final_model.parent_path());
    REQUIRE(log.size() == other.size());
    for (std::size_t i = 0; i < log.size(); ++i) {
      if (!log[i].contains("loss")) continue;
      for (const char* field : {"step", "tokens", "labelled_tokens"}) CHECK(log[i][field] == other[i][field]);
      const auto x = log[i]["loss"].get<double>(), y = other[i]["loss"].get<double>();
      loss = std::max(loss, std::fabs(x - y) / y);
    }
    const auto x = adapter_values(a.final_model), y = adapter_values(b.final_model);
    REQUIRE(x.size() == y.size());
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      difference += std::pow(x[i] - y[i], 2);
      norm += std::pow(y[i], 2);
    }
    adapter = std::sqrt(difference / norm);
  }
};

/// How far rounding may take a run from `reference`, the run of `config`. A sum of n terms in another order is the
/// exact sum of terms that are off by up to n units of rounding each (Higham, section 3.1), so runs are made whose
/// weights are off by that much at random, each time by others, and the farthest of three counts; the longest sums have
/// 96 terms, over the rows of a step. Orders of sums differ by far less, for such errors are of any sign: see
/// docs/numerics_runs.md.
Distance reach_of_rounding(const Workshop& shop, Config config, const RunResult& reference) {
  Distance reach;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    auto tensors = random_tensors({});
    Random random(seed);
    for (auto& tensor : tensors)
      for (double& value : tensor.values)
        value *= 1 + std::ldexp(96.0, -24) * (2 * static_cast<double>(random.uniform()) - 1);
    const io::Path model = shop.temp / concat("model off by rounding ", seed);
    write_model(model, config_json({}), tensors, DType::f32);
    config.model_name_or_path = model.native();
    config.output_dir = (shop.temp / concat("run off by rounding ", seed)).native();
    const Distance distance(fine_tune(config), reference);
    reach.loss = std::max(reach.loss, distance.loss);
    reach.adapter = std::max(reach.adapter, distance.adapter);
  }
  return reach;
}

void expect_within(const Distance& reach, const RunResult& result, const RunResult& reference) {
  const Distance distance(result, reference);
  CHECK(distance.loss <= reach.loss);
  CHECK(distance.adapter <= reach.adapter);
}

}  // namespace

TEST_CASE("trainer: a run writes every file of the contract and a log that adds up") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  RunOptions options;
  options.command = "lora train --seed 42";
  Index steps = 0, evaluations = 0;
  options.on_step = [&](const StepMetrics&) { ++steps; };
  options.on_evaluation = [&](const Evaluation&) { ++evaluations; };
  const auto result = fine_tune(config, options);
  // 22 records, 4 a step: 6 steps an epoch, of which the last takes 2.
  CHECK(result.metrics.steps == 24);
  CHECK(steps == 24);
  CHECK(evaluations == 6);
  CHECK(result.stopped_by == 0);
  const io::Path run = shop.temp / "run";
  CHECK(result.final_model == run / "final_model");
  for (const char* name :
       {"final_model/adapter_config.json", "final_model/adapter_model.safetensors", "final_model/README.md",
        "trainer_log.jsonl", "training.log", "training_metrics.json", "report.html", "loss.svg", "train_command.txt",
        "environment_info.txt", "run_config.json", "tensorboard/events.out.tfevents.lora",
        "checkpoints/checkpoint-24/trainer_state.json", "checkpoints/checkpoint-24/optimizer.safetensors",
        "checkpoints/checkpoint-3/adapter_config.json"}) {
    CAPTURE(name);
    CHECK(std::filesystem::is_regular_file(run / name));
  }
  CHECK(io::read_file(run / "train_command.txt") == "lora train --seed 42\n");
  // The pictures are of the finished run: they can be made again from its folder.
  const report::RunRecord record = report::read_run(run);
  CHECK(io::read_file(run / "report.html") ==
        report::page_of({record}, settings::to_json({}, settings::train_command)));
  CHECK(io::read_file(run / "loss.svg") == report::loss_picture(record));
  CHECK(record.curve("loss").size() == 12);
  CHECK(record.evaluations.size() == 6);
  CHECK(run::Checkpoints(run).steps() == std::vector<Index>{3, 6, 9, 12, 15, 18, 21, 24});

  std::vector<Index> logged, evaluated;
  for (const auto& line : log_of(run)) {
    (line.contains("eval_loss") ? evaluated : logged).push_back(line.at("step").get<Index>());
    if (line.contains("eval_loss"))
      CHECK(line.at("eval_perplexity").get<double>() == std::exp(line.at("eval_loss").get<double>()));
  }
  CHECK(logged == std::vector<Index>{2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24});
  CHECK(evaluated == std::vector<Index>{4, 8, 12, 16, 20, 24});
  const auto lines = log_of(run);
  CHECK(lines[0].at("learning_rate").get<double>() == doctest::Approx(1e-2 / 3));
  CHECK(lines[0].at("epoch").get<double>() == doctest::Approx(8.0 / 22));
  const io::Json metrics = io::read_json(run / "training_metrics.json");
  CHECK(metrics.at("steps") == 24);
  CHECK(metrics.at("resumed_from_step") == 0);
  CHECK(metrics.at("train_loss") == result.metrics.train_loss);
  Index tokens = 0;
  const auto data = data::Dataset::open(config.dataset);
  for (Index i = 0; i < data.size(); ++i) tokens += static_cast<Index>(data[i].tokens.size());
  CHECK(metrics.at("total_tokens") == 4 * tokens);
}

TEST_CASE("trainer: a run ends with what it has come to and where that lies") {
  Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  config.max_steps = 8;
  config.load_best_model_at_end = true;
  const run::RunMetrics metrics = fine_tune(config).metrics;
  const std::string page = io::read_file(shop.temp / "run" / "report.html");
  CHECK(page.find("The training has not ended yet.") == page.npos);
  CHECK(page.find(concat("<td class=\"n\">", metrics.total_tokens, "</td>")) != page.npos);
  CHECK(quiet.said(
      concat("a step: 4 sequences, ", fixed(static_cast<double>(metrics.total_tokens) / 8, 0), " tokens in ")));
  CHECK(quiet.said("TFLOP, on average of the first\n"));
  CHECK(quiet.said(concat("done: 8 steps and ", metrics.total_tokens, " tokens in 0:")));
  CHECK(quiet.said(concat("; mean loss ", fixed(metrics.mean_train_loss, 4), ", of the last step ",
                          fixed(metrics.train_loss, 4), "; the best evaluation was step ", *metrics.best_step,
                          "'s, with loss ", fixed(*metrics.best_eval_loss, 4), ", whose weights final_model has\n")));
  CHECK(quiet.said(concat("the numbers are in ", (shop.temp / "run" / "training_metrics.json").native(), " and ",
                          (shop.temp / "run" / "trainer_log.jsonl").native(), ", checkpoints in ",
                          (shop.temp / "run" / "checkpoints").native(), "\n")));
  quiet.text.clear();
  config.resume_from_checkpoint = "auto";
  fine_tune(config);
  CHECK_FALSE(quiet.said("done: "));
}

TEST_CASE("trainer: the same settings give the same bits, another seed others") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config("a");
  fine_tune(config);
  config.output_dir = (shop.temp / "b").native();
  fine_tune(config);
  expect_same(lasting_files(shop.temp / "a"), lasting_files(shop.temp / "b"));
  config.output_dir = (shop.temp / "c").native();
  config.seed = 43;
  fine_tune(config);
  CHECK(numbers_of(shop.temp / "a") != numbers_of(shop.temp / "c"));
}

TEST_CASE("trainer: how a step is split changes its numbers by rounding only") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config("1x8");
  config.per_device_train_batch_size = 1;
  config.gradient_accumulation_steps = 8;
  const auto reference = fine_tune(config);
  const Distance reach = reach_of_rounding(shop, config, reference);
  for (const Index size : {2, 8}) {
    CAPTURE(size);
    if (size == 8 && !effort(true, false, "trainer: a step in one piece")) continue;
    config.output_dir = (shop.temp / concat(size)).native();
    config.per_device_train_batch_size = size;
    config.gradient_accumulation_steps = 8 / size;
    expect_within(reach, fine_tune(config), reference);
  }
}

TEST_CASE("trainer: the number of threads changes its numbers by rounding only") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config("1");
  config.max_steps = 12;
  const auto reference = fine_tune(config);
  const Distance reach = reach_of_rounding(shop, config, reference);
  for (const int threads : {2, 3}) {
    CAPTURE(threads);
    if (threads == 2 && !effort(true, false, "trainer: two threads")) continue;
    config.threads = threads;
    config.output_dir = (shop.temp / concat(threads)).native();
    expect_within(reach, fine_tune(config), reference);
    config.output_dir = (shop.temp / concat(threads, " again")).native();
    fine_tune(config);
    expect_same(lasting_files(shop.temp / concat(threads)), lasting_files(config.output_dir));
  }
}

TEST_CASE("trainer: how many tokens fill a micro-batch changes neither the steps nor their loss") {
  const Quiet quiet;
  const Workshop shop;
  Config config = shop.config("by sequences");
  config.max_steps = 4;
  config.logging_steps = 1;
  const auto reference = fine_tune(config);
  const Distance reach = reach_of_rounding(shop, config, reference);
  for (const Index tokens : {1, 30, 1000}) {
    CAPTURE(tokens);
    config.max_tokens_per_micro_batch = tokens;
    config.output_dir = (shop.temp / concat("by ", tokens)).native();
    expect_within(reach, fine_tune(config), reference);
  }
}

TEST_CASE("trainer: it learns eight records by heart") {
  if (!test::effort(true, false, "trainer: eight records by heart")) return;
  const Quiet quiet;
  const Workshop shop;
  RandomModel wide;  // wide enough for its frozen head to tell tokens apart
  wide.hidden = 256;
  write_random_model(shop.temp / "model", wide);
  write_tokens(shop.temp / "eight.jsonl", 8, 3);
  auto config = shop.config();
  config.dataset = {(shop.temp / "eight.jsonl").native()};
  config.eval_dataset.clear();
  config.eval_steps.reset();
  config.lora_rank = 8;
  config.lora_dropout = 0;
  config.weight_decay = 0;
  config.per_device_train_batch_size = 8;
  config.gradient_accumulation_steps = 1;
  config.max_steps = 200;
  config.learning_rate = 3e-2;
  config.save_steps = 1000;
  config.logging_steps = 1;
  const auto result = fine_tune(config);
  CHECK(log_of(shop.temp / "run").front().at("loss").get<double>() > 3);
  CHECK(result.metrics.train_loss < 0.1);
}

TEST_CASE("trainer: gradient checkpointing gives the same bits") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config("kept");
  fine_tune(config);
  config.gradient_checkpointing = true;
  config.output_dir = (shop.temp / "recomputed").native();
  fine_tune(config);
  expect_same(lasting_files(shop.temp / "kept"), lasting_files(shop.temp / "recomputed"));
}

TEST_CASE("trainer: a memory limit checkpoints layers, and one that nothing fits is refused") {
  Quiet quiet;
  const Workshop shop;
  Config config = shop.config("limited");
  config.max_steps = 1;
  config.memory_limit_gib = 1e-6;
  CHECK_THROWS_WITH_AS(fine_tune(config), doctest::Contains("key memory_limit_gib: given 1e-06"), ConfigError);
  config.memory_limit_gib = 1000;
  fine_tune(config);
  CHECK_FALSE(quiet.said("layers are checkpointed"));
}

TEST_CASE("trainer: a memory limit checkpoints layers of a run, which then holds less and learns the same") {
  if (!test::effort(true, false, "trainer: what a run holds under a memory limit")) return;
  const Workshop shop;
  RandomModel shape;
  shape.hidden = 128;
  shape.ffn = 1024;
  shape.head_dim = 32;
  shape.layers = 6;
  write_random_model(shop.temp / "model", shape);
  std::string text;  // whose activations are far more than what the process holds by then, and how that moves
  for (int record = 0; record < 4; ++record) {
    io::Json ids = io::Json::array();
    for (int i = 0; i < 1024; ++i) ids.push_back((7 * i + record) % 60);
    text += io::to_text(io::json_object({{"input_ids", ids}, {"labels", ids}}), -1) + "\n";
  }
  io::write_file(shop.temp / "train.jsonl", std::string_view(text));
  Config config = shop.config("free");
  config.eval_dataset.clear();
  config.eval_steps.reset();
  config.max_steps = 1;
  config.gradient_accumulation_steps = 1;
  const Quiet quiet;
  const auto saved_by_run = [&] {
    cpu::Device dev(1);
    train::TrainingRun<cpu::Device, float>(dev, config, inputs::open_source(config), {}).run();
    return dev.arena().peak_saved();
  };
  const auto free = saved_by_run();
  REQUIRE_FALSE(quiet.said("layers are checkpointed"));
  CHECK(quiet.said(" MiB for what trains); "));  // of an adapter that is far from a hundredth of a GiB
  const auto gib_after = [&](std::string_view words) {
    return std::stod(quiet.text.substr(quiet.text.find(words) + words.size()));
  };
  const double needs = gib_after("a peak of about ") - gib_after("held already "),
               activations = gib_after("activations ");
  config.output_dir = (shop.temp / "limited").native();
  config.memory_limit_gib = run::resident_memory_gib() + needs - 0.4 * activations;
  const auto limited = saved_by_run();
  CHECK(quiet.said("of 6 layers are checkpointed to stay below "));
  CHECK(limited < free / 10 * 8);
  expect_same(lasting_files(shop.temp / "free"), lasting_files(shop.temp / "limited"));
}

TEST_CASE("trainer: a record without labels leaves its place empty, a step of them is skipped with a warning") {
  Quiet quiet;
  const Workshop shop;
  std::string text;
  const std::string good = "{\"input_ids\":[1,2,3],\"labels\":[-100,2,3]}\n";
  const std::string empty = "{\"input_ids\":[4,5,6],\"labels\":[-100,-100,-100]}\n";
  for (const auto& line : {good, empty, empty, empty, good, good}) text += line;
  io::write_file(shop.temp / "gaps.jsonl", std::string_view(text));
  auto config = shop.config();
  config.dataset = {(shop.temp / "gaps.jsonl").native()};
  config.shuffle = false;
  config.per_device_train_batch_size = 1;
  config.num_train_epochs = 1;
  config.logging_steps = 1;
  const auto result = fine_tune(config);
  CHECK(result.metrics.steps == 3);
  CHECK(quiet.said("3 of 6 records have no labeled token and are left out, 0 of them because of cutoff_len 2048"));
  CHECK(quiet.said("step 2 has no labeled token and is skipped"));
  CHECK(quiet.said("step 3/3  loss "));
  CHECK_FALSE(quiet.said("step 2/3  "));  // its warning stands for it
  std::vector<Index> tokens;
  for (const auto& line : log_of(shop.temp / "run")) {
    if (!line.contains("tokens")) continue;
    tokens.push_back(line.at("tokens").get<Index>());
    CHECK(line.at("loss").is_null() == (line.at("step") == 2));
  }
  CHECK(tokens == std::vector<Index>{3, 0, 6});
}

TEST_CASE("trainer: the last step has a line of progress, also where it is skipped and no other has one") {
  Quiet quiet;
  const Workshop shop;
  std::string text;
  for (const char* label : {"2", "2", "-100", "-100"})
    text += concat("{\"input_ids\":[1,2],\"labels\":[-100,", std::string_view(label), "]}\n");
  io::write_file(shop.temp / "gaps.jsonl", std::string_view(text));
  auto config = shop.config();
  config.dataset = {(shop.temp / "gaps.jsonl").native()};
  config.shuffle = false;
  config.per_device_train_batch_size = 1;
  config.num_train_epochs = 1;
  config.logging_steps = 10;
  fine_tune(config);
  CHECK(quiet.said("step 2/2  skipped  "));
}

TEST_CASE(
    "trainer: a loss or gradient that is not finite names the step and its records, and stops or is passed over") {
  Quiet quiet;
  const Workshop shop;
  std::vector<RandomTensor> tensors;
  const auto rows_of = [&](const std::string& name, auto&& change) {
    for (auto& tensor : tensors) {
      if (!tensor.name.ends_with(name + ".weight")) continue;
      const auto cols = static_cast<std::size_t>(tensor.shape[tensor.shape.rank() - 1]);
      for (std::size_t i = 0; i < tensor.values.size(); i += cols) change(i / cols, tensor.values.data() + i, cols);
    }
  };
  // The first number in a row of the residual stream is `value` for token 60, and 0 for all others.
  const auto single_out = [&](double value) {
    rows_of("embed_tokens", [=](std::size_t i, double* row, std::size_t) { row[0] = i == 60 ? value : 0; });
    for (const char* name : {"o_proj", "down_proj"})
      rows_of(name, [](std::size_t i, double* row, std::size_t cols) { std::fill_n(row, i == 0 ? cols : 0, 0.0); });
  };
  const auto embed = [&](double value) {
    rows_of("embed_tokens", [&](std::size_t i, double* row, std::size_t) { row[0] = i == 60 ? value : row[0]; });
  };
  struct Cause {
    const char* name;
    std::function<void()> change;
    double learning_rate;
    int loss, norm;  // as std::fpclassify tells them
  };
  const std::vector<Cause> causes = {
      {"nan", [&] { embed(std::numeric_limits<double>::quiet_NaN()); }, 1e-2, FP_NAN, FP_NAN},
      {"infinite", [&] { embed(std::numeric_limits<double>::infinity()); }, 1e-2, FP_NAN, FP_NAN},
      // The label behind token 60 gets the logit -inf.
      {"impossible",
       [&] {
         single_out(10);
         rows_of("lm_head", [](std::size_t i, double* row, std::size_t) { row[0] = i == 59 ? -3e38 : 0; });
       },
       0, FP_INFINITE, FP_NAN},
      // At token 60 the MLP's inner numbers are of 1e30, and the gradients that meet them of 1e15.
      {"steep",
       [&] {
         single_out(1);
         const auto scale = [&](const char* name, double factor) {
           rows_of(name, [=](std::size_t, double* row, std::size_t cols) {
             for (std::size_t j = 0; j < cols; ++j) row[j] *= factor;
           });
         };
         rows_of("0.mlp.up_proj", [](std::size_t, double* row, std::size_t) { row[0] = 1e30; });
         scale("0.mlp.down_proj", 1e-30);
         scale("lm_head", 1e15);
       },
       0, FP_NORMAL, FP_INFINITE}};
  std::string text;
  for (int i = 0; i < 12; ++i)
    text += i == 9 ? "{\"input_ids\":[60,59,3],\"labels\":[-100,59,3]}\n"
                   : "{\"input_ids\":[1,2,3],\"labels\":[-100,2,3]}\n";
  io::write_file(shop.temp / "odd.jsonl", std::string_view(text));
  for (const auto& cause : causes) {
    CAPTURE(std::string(cause.name));
    tensors = random_tensors({});
    cause.change();
    write_model(shop.temp / "model", config_json({}), tensors, DType::f32);
    auto config = shop.config(cause.name);
    config.dataset = {(shop.temp / "odd.jsonl").native()};
    config.eval_dataset.clear();
    config.eval_steps.reset();
    config.shuffle = false;
    config.num_train_epochs = 1;
    config.save_steps = 1000;
    config.learning_rate = cause.learning_rate;
    const auto expect_said = [&](const std::string& said) {
      CAPTURE(said);
      const auto number_after = [&](const std::string& words) {
        const auto at = said.find(words);
        REQUIRE(at != said.npos);
        return std::stod(said.substr(at + words.size()));
      };
      CHECK(std::fpclassify(number_after("step 3: loss ")) == cause.loss);
      CHECK(std::fpclassify(number_after(", gradient norm ")) == cause.norm);
      const std::string records = concat("its records: ", (shop.temp / "odd.jsonl").native(), ":9, ");
      CHECK(holds(said, records));
      CHECK(holds(said, concat(", ", (shop.temp / "odd.jsonl").native(), ":10, ")));
    };
    const std::string message = message_of<Error>([&] { fine_tune(config); });
    expect_said(message);
    const run::Checkpoints checkpoints(config.output_dir);
    CHECK(message.ends_with(concat("; the state before it is ", checkpoints.folder_of(2).native())));
    REQUIRE(checkpoints.newest());
    CHECK(checkpoints.newest()->state.step == 2);
    CHECK_FALSE(std::filesystem::exists(shop.temp / cause.name / "final_model"));

    config.on_non_finite = "skip";
    config.output_dir += " skipped";
    quiet.text.clear();
    const auto result = fine_tune(config);
    CHECK(result.metrics.steps == 3);
    expect_said(quiet.text);
    CHECK(quiet.said("; the step is skipped"));
    // Its loss is not the run's last one.
    CHECK(result.metrics.train_loss == run::Checkpoints(config.output_dir).newest()->state.last_loss);
    CHECK(std::isfinite(result.metrics.train_loss));
    for (const float value : adapter_values(result.final_model)) CHECK(std::isfinite(value));
    CHECK(adapter_values(result.final_model) == adapter_values(checkpoints.folder_of(2)));
  }
}

TEST_CASE("trainer: the last step has a line whatever logging_steps is, before that of its evaluation") {
  const Quiet quiet;
  const Workshop shop;
  Config config = shop.config("run");
  config.max_steps = 3;
  config.logging_steps = 2;
  config.eval_steps = 3;
  fine_tune(config);
  std::vector<std::pair<Index, bool>> lines;  // a step, and whether it is an evaluation's
  for (const io::Json& line : log_of(config.output_dir))
    lines.emplace_back(line.at("step"), line.contains("eval_loss"));
  CHECK(lines == std::vector<std::pair<Index, bool>>{{2, false}, {3, false}, {3, true}});
}

TEST_CASE("trainer: a run of which every step is skipped leaves no adapter that looks trained") {
  const Quiet quiet;
  const Workshop shop;
  auto tensors = random_tensors({});
  for (auto& tensor : tensors)
    if (tensor.name == "model.norm.weight") tensor.values[0] = std::numeric_limits<double>::quiet_NaN();
  write_model(shop.temp / "model", config_json({}), tensors, DType::f32);
  auto config = shop.config("skipped");
  config.eval_dataset.clear();
  config.eval_steps.reset();
  config.max_steps = 2;
  config.on_non_finite = "skip";
  const std::string reason =
      concat("; the tensor model.norm.weight of ", (shop.temp / "model" / "model.safetensors").native(), " holds nan");
  CHECK(message_of<Error>([&] { fine_tune(config); }) ==
        "no step had a finite loss and gradient: nothing was learned, and no final_model is written" + reason);
  config.resume_from_checkpoint = "auto";  // the checkpoint knows why
  CHECK(message_of<Error>([&] { fine_tune(config); }) ==
        "no step had a finite loss and gradient: nothing was learned, and no final_model is written" + reason);
  CHECK_FALSE(std::filesystem::exists(shop.temp / "skipped" / "final_model"));
}

TEST_CASE(
    "trainer: of a base that holds NaN the tensor is named, in full training too, and no learning rate is blamed") {
  const Quiet quiet;
  const Workshop shop;
  auto tensors = random_tensors({});
  for (auto& tensor : tensors)
    if (tensor.name == "model.norm.weight") tensor.values[0] = std::numeric_limits<double>::quiet_NaN();
  write_model(shop.temp / "model", config_json({}), tensors, DType::f32);
  for (const char* type : {"lora", "full"}) {
    CAPTURE(std::string(type));
    auto config = shop.config(type);
    config.eval_dataset.clear();
    config.eval_steps.reset();
    config.max_steps = 2;
    config.finetuning_type = type;
    if (config.trains_model()) {
      config.lora_rank.reset();
      config.lora_dropout = 0;
      config.lora_target.clear();
    }
    const std::string said = message_of<Error>([&] { fine_tune(config); });
    CAPTURE(said);
    CHECK(said.find("the tensor model.norm.weight of ") != std::string::npos);
    CHECK(said.find(" holds nan") != std::string::npos);
    CHECK(said.find("learning_rate") == std::string::npos);
  }
}

TEST_CASE("trainer: starting from an adapter, its file supplies the settings and a key that contradicts is refused") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config("first");
  config.max_steps = 2;
  config.lora_rank = 3;
  config.lora_target = {"q_proj", "down_proj"};
  const auto first = fine_tune(config);
  auto next = shop.config("second");
  next.lora_rank.reset();
  next.max_steps = 1;
  next.learning_rate = 0;
  next.adapter_name_or_path = first.final_model.native();
  CHECK(adapter_values(fine_tune(next).final_model) == adapter_values(first.final_model));
  const auto refuse = [&](auto give, const char* message) {
    auto given = next;
    given.output_dir = (shop.temp / "third").native();
    give(given);
    CHECK_THROWS_WITH_AS(fine_tune(given), doctest::Contains(message), ConfigError);
  };
  refuse([](Config& c) { c.lora_rank = 8; }, "key lora_rank: given 8, but the adapter ");
  refuse([](Config& c) { c.lora_alpha = 5; }, "key lora_alpha: given 5, but the adapter ");
  refuse([](Config& c) { c.use_rslora = true; }, "key use_rslora: given true, but the adapter ");
  refuse([](Config& c) { c.lora_target = {"all"}; }, "key lora_target: given down_proj,gate_proj,");
}

}  // namespace trainer_test
