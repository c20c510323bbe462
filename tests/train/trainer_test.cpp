#include "lora/trainer.hpp"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "lora/instantiate.hpp"
#include "support/effort.hpp"
#include "support/file_faults.hpp"
#include "support/quiet.hpp"
#include "support/random_model.hpp"
#include "support/random_tokens.hpp"
#include "support/temp_folder.hpp"
#include "support/tensorboard_events.hpp"

using namespace lora;
using lora::test::Quiet;
using lora::test::TempFolder;
using lora::test::write_tokens;

namespace {

/// A tiny model and data, and settings that use most of what a run has: dropout, shuffling, accumulation, a schedule
/// with warm-up, an evaluation set, and steps that the records don't divide.
struct Workshop {
  TempFolder temp;

  Workshop() {
    test::write_random_model(temp / "model", {});
    write_tokens(temp / "train.jsonl", 22, 1);
    write_tokens(temp / "eval.jsonl", 5, 2);
  }

  Config config(const std::string& output = "run") const {
    Config config;
    config.model_name_or_path = (temp / "model").native();
    config.dataset = {(temp / "train.jsonl").native()};
    config.eval_dataset = {(temp / "eval.jsonl").native()};
    config.output_dir = (temp / output).native();
    config.dtype = "float32";
    config.lora_rank = 2;
    config.lora_dropout = 0.25;
    config.per_device_train_batch_size = 2;
    config.given.insert_or_assign("per_device_train_batch_size", train::Config::Origin::file);
    config.gradient_accumulation_steps = 2;
    config.learning_rate = 1e-2;
    config.lr_scheduler_type = "cosine";
    config.warmup_steps = 3;
    config.weight_decay = 0.01;
    config.num_train_epochs = 4;
    config.eval_steps = 4;
    config.save_steps = 3;
    config.logging_steps = 2;
    config.threads = 1;
    return config;
  }
};

RunResult fine_tune(const Config& config, RunOptions options = {}) {
  return Trainer(config, std::move(options)).train();
}

std::vector<io::Json> log_of(const io::Path& run) {
  std::vector<io::Json> lines;
  const std::string text = io::read_file(run / "trainer_log.jsonl");
  for (std::size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
    lines.push_back(io::parse_json(text.substr(at, end - at), "log"));
  return lines;
}

/// The log without what differs between two runs of the same numbers.
std::string numbers_of(const io::Path& run) {
  std::string text;
  for (io::Json line : log_of(run)) {
    for (const char* field : {"tokens_per_second", "elapsed_seconds", "peak_memory_gib"}) line.erase(field);
    text += io::to_text(line, -1) + "\n";
  }
  return text;
}

/// The files of a run whose bytes must repeat.
std::map<std::string, std::string> lasting_files(const io::Path& run) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(run)) {
    const std::string name = std::filesystem::relative(entry.path(), run).native();
    if (entry.is_regular_file() && (name.starts_with("final_model") || name.starts_with("checkpoints")))
      files[name] = io::read_file(entry.path());
  }
  files["log"] = numbers_of(run);
  return files;
}

/// The steps of a run's TensorBoard events.
std::vector<Index> events_of(const io::Path& run) {
  return test::steps_of_events(io::read_file(run / "tensorboard" / "events.out.tfevents.lora"));
}

void expect_same(const std::map<std::string, std::string>& a, const std::map<std::string, std::string>& b) {
  std::set<std::string> names;
  for (const auto* files : {&a, &b})
    for (const auto& [name, bytes] : *files) names.insert(name);
  for (const auto& name : names) {
    CAPTURE(name);
    REQUIRE(a.count(name) == 1);
    REQUIRE(b.count(name) == 1);
    CHECK(a.at(name) == b.at(name));
  }
}

/// Runs in a process of its own; the exit status is 0, 128 + the stop flag's value, or 1 for an error.
pid_t start_process(const Config& config, const std::atomic<int>* stop = nullptr) {
  const pid_t child = fork();
  if (child != 0) return child;
  log::set_sink(nullptr);
  int status = 1;
  try {
    RunOptions options;
    options.stop = stop;
    const auto result = fine_tune(config, options);
    status = result.stopped_by == 0 ? 0 : 128 + result.stopped_by;
  } catch (const std::exception&) {}
  _exit(status);
}

int wait_for(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

std::vector<float> adapter_values(const io::Path& folder) {
  const auto file = io::Safetensors::open(folder / "adapter_model.safetensors");
  std::vector<float> values;
  for (const auto& tensor : file.tensors()) {
    const auto* data = reinterpret_cast<const float*>(tensor.bytes.data());
    values.insert(values.end(), data, data + tensor.shape.count());
  }
  return values;
}

/// Runs that differ by sums of a few hundred float32 terms in another order, over a dozen or two steps of AdamW.
void expect_near(const RunResult& result, const RunResult& reference) {
  CHECK(result.metrics.steps == reference.metrics.steps);
  CHECK(result.metrics.total_tokens == reference.metrics.total_tokens);
  CHECK(result.metrics.train_loss == doctest::Approx(reference.metrics.train_loss).epsilon(1e-5));
  const auto values = adapter_values(result.final_model), expected = adapter_values(reference.final_model);
  REQUIRE(values.size() == expected.size());
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    difference += std::pow(values[i] - expected[i], 2);
    norm += std::pow(expected[i], 2);
  }
  CHECK(std::sqrt(difference / norm) < 1e-4);
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
  options.on_evaluation = [&](const EvalMetrics&) { ++evaluations; };
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
        "trainer_log.jsonl", "training.log", "training_metrics.json", "train_command.txt", "environment_info.txt",
        "run_config.json", "tensorboard/events.out.tfevents.lora", "checkpoints/checkpoint-24/trainer_state.json",
        "checkpoints/checkpoint-24/optimizer.safetensors", "checkpoints/checkpoint-3/adapter_config.json"}) {
    CAPTURE(name);
    CHECK(std::filesystem::is_regular_file(run / name));
  }
  CHECK(io::read_file(run / "train_command.txt") == "lora train --seed 42\n");
  CHECK(train::Checkpoints(run).steps() == std::vector<Index>{3, 6, 9, 12, 15, 18, 21, 24});

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

TEST_CASE("trainer: a run that is stopped writes a checkpoint and goes on to the bytes of the uninterrupted run") {
  const Quiet quiet;
  const Workshop shop;
  fine_tune(shop.config("whole"));
  auto config = shop.config("parts");
  config.resume_from_checkpoint = "auto";
  for (const Index stop_after : {5, 12, 16}) {
    std::atomic<int> stop{0};
    RunOptions options;
    options.stop = &stop;
    options.on_step = [&](const StepMetrics& metrics) {
      if (metrics.step == stop_after) stop = SIGTERM;
    };
    const auto result = fine_tune(config, options);
    CHECK(result.stopped_by == SIGTERM);
    CHECK(result.metrics.steps == stop_after);
    CHECK(result.final_model.empty());
    CHECK(train::Checkpoints(shop.temp / "parts").steps().back() == stop_after);
  }
  const auto result = fine_tune(config);
  CHECK(result.metrics.resumed_from_step == 16);
  CHECK(io::read_json(shop.temp / "parts" / "training_metrics.json").at("resumed_from_step") == 16);
  for (const Index step : {5, 16}) train::remove_whole_folder(train::Checkpoints(shop.temp / "parts").folder_of(step));
  CHECK(events_of(shop.temp / "whole") == events_of(shop.temp / "parts"));
  expect_same(lasting_files(shop.temp / "whole"), lasting_files(shop.temp / "parts"));
}

TEST_CASE("trainer: a stop that is asked for during an evaluation costs no further step") {
  Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  std::atomic<int> stop{0};
  RunOptions options;
  options.stop = &stop;
  Index evaluated = 0;
  options.on_evaluation = [&](const EvalMetrics& metrics) {
    evaluated = metrics.step;
    stop = SIGINT;
  };
  const auto result = fine_tune(config, options);
  CHECK(result.stopped_by == SIGINT);
  CHECK(result.metrics.steps == evaluated);
  CHECK(train::Checkpoints(shop.temp / "run").steps().back() == evaluated);
}

TEST_CASE("trainer: killed twenty times at random moments, it ends with the bytes of the uninterrupted run") {
  const Workshop shop;
  const auto start = std::chrono::steady_clock::now();
  REQUIRE(wait_for(start_process(shop.config("whole"))) == 0);
  const auto whole_run =
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start);
  auto config = shop.config("killed");
  config.resume_from_checkpoint = "auto";
  Random random(7);
  Index kills = 0;
  const auto wanted = test::effort<Index>(20, 4);
  for (int attempt = 0; attempt < 400 && kills < wanted; ++attempt) {
    const pid_t child = start_process(config);
    const auto limit = static_cast<std::uint32_t>(whole_run.count());
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(limit)));
    kill(child, SIGKILL);
    const int status = wait_for(child);
    if (WIFSIGNALED(status)) {
      ++kills;
    } else {
      REQUIRE(status == 0);  // it came to its end first: another round from the beginning
      const Quiet quiet;
      expect_same(lasting_files(shop.temp / "whole"), lasting_files(shop.temp / "killed"));
      std::filesystem::remove_all(shop.temp / "killed");
    }
  }
  CHECK(kills == wanted);
  REQUIRE(wait_for(start_process(config)) == 0);
  CHECK(events_of(shop.temp / "whole") == events_of(shop.temp / "killed"));
  expect_same(lasting_files(shop.temp / "whole"), lasting_files(shop.temp / "killed"));
}

TEST_CASE("trainer: whatever goes wrong at a file operation of a run, going on ends with the bytes of the whole run") {
  const Quiet quiet;
  const Workshop shop;
  const auto configure = [&](const std::string& output) {
    auto config = shop.config(output);
    config.max_steps = 4;
    config.save_steps = 1;
    config.save_total_limit = 2;
    config.eval_steps = 2;
    config.logging_steps = 1;
    config.resume_from_checkpoint = "auto";
    return config;
  };
  const io::Path outer = shop.temp / "outer";
  io::create_folders(outer);
  fine_tune(configure("whole"));
  const auto whole = lasting_files(shop.temp / "whole");
  const auto config = configure("outer/run");
  using lora::test::Fault;
  for (const Fault fault : {Fault::dies, Fault::loses_unsynced, Fault::loses_data, Fault::fails, Fault::disk_full}) {
    // A few operations of each; the saves and rotations among them are swept one by one in the checkpoints' own tests.
    bool reached = true;
    for (Index at = 1 + static_cast<Index>(fault); reached; at += test::effort<Index>(37, 173)) {
      CAPTURE(static_cast<int>(fault));
      CAPTURE(at);
      std::filesystem::remove_all(outer / "run");
      {
        test::FileFaults faults(outer, fault, at);
        try {
          fine_tune(config);
        } catch (const Error&) {  // what it left behind is what counts
        }
        reached = faults.count() >= at;
      }
      fine_tune(config);
      expect_same(whole, lasting_files(outer / "run"));
    }
  }
}

TEST_CASE("trainer: a finished run that is resumed changes nothing, and puts a missing final_model back") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  fine_tune(config);
  const auto before = lasting_files(shop.temp / "run");
  const std::string metrics = io::read_file(shop.temp / "run" / "training_metrics.json");
  config.resume_from_checkpoint = "auto";
  fine_tune(config);
  expect_same(before, lasting_files(shop.temp / "run"));
  CHECK(io::read_file(shop.temp / "run" / "training_metrics.json") == metrics);
  std::filesystem::remove_all(shop.temp / "run" / "final_model");
  fine_tune(config);
  expect_same(before, lasting_files(shop.temp / "run"));
}

TEST_CASE("trainer: how a step is split changes its numbers by rounding only") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config("1x8");
  config.per_device_train_batch_size = 1;
  config.gradient_accumulation_steps = 8;
  const auto reference = fine_tune(config);
  for (const Index size : {2, 8}) {
    CAPTURE(size);
    config.output_dir = (shop.temp / concat(size)).native();
    config.per_device_train_batch_size = size;
    config.gradient_accumulation_steps = 8 / size;
    expect_near(fine_tune(config), reference);
  }
}

TEST_CASE("trainer: the number of threads changes its numbers by rounding only") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config("1");
  config.max_steps = 12;
  const auto reference = fine_tune(config);
  for (const int threads : {2, 3}) {
    CAPTURE(threads);
    config.threads = threads;
    config.output_dir = (shop.temp / concat(threads)).native();
    expect_near(fine_tune(config), reference);
    config.output_dir = (shop.temp / concat(threads, " again")).native();
    fine_tune(config);
    expect_same(lasting_files(shop.temp / concat(threads)), lasting_files(config.output_dir));
  }
}

TEST_CASE("trainer: it learns eight records by heart") {
  const Quiet quiet;
  const Workshop shop;
  test::RandomModel wide;  // wide enough for its frozen head to tell tokens apart
  wide.hidden = 256;
  test::write_random_model(shop.temp / "model", wide);
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

TEST_CASE("trainer: what must not change when a run goes on is an error with both values") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  config.max_steps = 3;
  fine_tune(config);
  config.resume_from_checkpoint = "auto";
  const auto expect = [&](const char* key, const std::string& now, const std::string& then, auto&& change) {
    auto changed = config;
    change(changed);
    CAPTURE(key);
    std::string message = "nothing was thrown";
    try {
      fine_tune(changed);
    } catch (const ConfigError& error) {
      message = error.what();
    }
    CAPTURE(message);
    CHECK(message.starts_with(concat("key ", std::string_view(key), ": given ", now)));
    CHECK(message.find(concat(" was made with ", then)) != std::string::npos);
  };
  expect("rope_theta", "5000.0", "10000.0", [](Config& c) { c.rope_theta = 5000; });
  expect("no_rope_layers", "[1]", "[]", [](Config& c) { c.no_rope_layers = {1}; });
  expect("lora_rank", "4", "2", [](Config& c) { c.lora_rank = 4; });
  expect("lora_alpha", "3.0", "4.0", [](Config& c) { c.lora_alpha = 3; });
  expect("lora_dropout", "0.5", "0.25", [](Config& c) { c.lora_dropout = 0.5; });
  expect("lora_target", "[\"q_proj\"]", "[\"down_proj\",", [](Config& c) { c.lora_target = {"q_proj"}; });
  expect("use_rslora", "true", "false", [](Config& c) { c.use_rslora = true; });
  expect("seed", "1", "42", [](Config& c) { c.seed = 1; });
  expect("shuffle", "false", "true", [](Config& c) { c.shuffle = false; });
  expect("per_device_train_batch_size x gradient_accumulation_steps", "8", "4",
         [](Config& c) { c.per_device_train_batch_size = 4; });
  expect("dataset", "\"5 records with checksum ", "\"22 records", [](Config& c) { c.dataset = c.eval_dataset; });
  expect("dtype", "\"bfloat16\"", "\"float32\"", [](Config& c) { c.dtype = "bfloat16"; });
  expect("val_size", "3.0", "0.0", [](Config& c) {
    c.eval_dataset.clear();
    c.val_size = 3;
  });
  expect("enable_thinking", "false", "true", [](Config& c) { c.enable_thinking = false; });
  expect("text_column", "\"body\"", "\"text\"", [](Config& c) { c.text_column = "body"; });
  expect("cutoff_len", "100", "2048", [](Config& c) { c.cutoff_len = 100; });
  expect("train_on_prompt", "true", "false", [](Config& c) { c.train_on_prompt = true; });
  expect("train_on_last_turn_only", "true", "false", [](Config& c) { c.train_on_last_turn_only = true; });
  write_tokens(shop.temp / "train.jsonl", 22, 9);  // another content under the same name
  expect("dataset", "\"22 records with checksum ", "\"22 records with checksum ", [](Config&) {});
  write_tokens(shop.temp / "train.jsonl", 22, 1);
  auto longer = config;  // this may change
  longer.max_steps = 5;
  longer.learning_rate = 1e-3;
  longer.gradient_accumulation_steps = 4;
  longer.per_device_train_batch_size = 1;
  CHECK(fine_tune(longer).metrics.steps == 5);
}

TEST_CASE("trainer: save_total_limit keeps the newest and the best") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  config.save_total_limit = 2;
  fine_tune(config);
  CHECK(train::Checkpoints(shop.temp / "run").steps() == std::vector<Index>{21, 24});

  config.output_dir = (shop.temp / "best").native();
  config.load_best_model_at_end = true;
  config.learning_rate = 1;  // the loss goes up
  config.save_total_limit = 1;
  const auto result = fine_tune(config);
  REQUIRE(result.metrics.best_eval_loss);
  CHECK(*result.metrics.best_eval_loss < *result.metrics.eval_loss);
  const auto steps = train::Checkpoints(shop.temp / "best").steps();
  REQUIRE(steps.size() == 2);
  CHECK(steps[1] == 24);
  CHECK(adapter_values(shop.temp / "best" / "final_model") ==
        adapter_values(train::Checkpoints(shop.temp / "best").folder_of(steps[0])));
  CHECK(adapter_values(shop.temp / "best" / "final_model") !=
        adapter_values(train::Checkpoints(shop.temp / "best").folder_of(24)));
}

TEST_CASE("trainer: a folder with something in it is only taken on purpose") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  config.max_steps = 2;
  io::create_folders(shop.temp / "run");
  io::write_file(shop.temp / "run" / "notes.txt", "mine");
  CHECK_THROWS_WITH_AS(fine_tune(config), doctest::Contains("which is not empty"), ConfigError);
  CHECK(train::detail::entries_of(shop.temp / "run").size() == 1);
  config.resume_from_checkpoint = "auto";
  CHECK(fine_tune(config).metrics.steps == 2);
  config.resume_from_checkpoint.clear();
  CHECK_THROWS_AS(fine_tune(config), ConfigError);
  config.overwrite_output_dir = true;
  config.max_steps = 1;
  CHECK(fine_tune(config).metrics.steps == 1);
  CHECK(train::Checkpoints(shop.temp / "run").steps() == std::vector<Index>{1});
  CHECK(log_of(shop.temp / "run").size() == 2);
  CHECK(io::read_file(shop.temp / "run" / "notes.txt") == "mine");
}

TEST_CASE("trainer: another run's checkpoint gives no right to a folder with something in it") {
  Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  config.max_steps = 3;
  config.save_steps = 3;
  fine_tune(config);
  config.max_steps = 6;
  config.resume_from_checkpoint = (shop.temp / "run" / "checkpoints" / "checkpoint-3").native();
  config.output_dir = (shop.temp / "other").native();
  io::create_folders(shop.temp / "other");
  io::write_file(shop.temp / "other" / "letter.txt", std::string_view("dear"));
  CHECK_THROWS_WITH_AS(fine_tune(config), doctest::Contains("not empty"), ConfigError);
  io::remove_file(shop.temp / "other" / "letter.txt");
  CHECK(fine_tune(config).metrics.resumed_from_step == 3);
  config.output_dir = (shop.temp / "run").native();
  CHECK(fine_tune(config).metrics.resumed_from_step == 3);
}

TEST_CASE("trainer: an output folder that cannot be is a clear error before any work") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  io::write_file(shop.temp / "file", "x");
  config.output_dir = (shop.temp / "file" / "run").native();
  CHECK_THROWS_WITH_AS(fine_tune(config), doctest::Contains("file"), IoError);
  config.output_dir = (shop.temp / "file").native();
  CHECK_THROWS_WITH_AS(fine_tune(config), doctest::Contains("is not a folder"), IoError);
}

TEST_CASE("trainer: two runs in one folder are kept apart") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  config.resume_from_checkpoint = "auto";
  io::create_folders(shop.temp / "run");
  const io::Lock other(shop.temp / "run");
  CHECK_THROWS_WITH_AS(fine_tune(config), doctest::Contains("another run is using"), IoError);
}

TEST_CASE("trainer: bad data ends the run before output_dir exists") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  const auto expect = [&](std::string_view data, const char* message) {
    CAPTURE(message);
    io::write_file(shop.temp / "bad.jsonl", data);
    config.dataset = {(shop.temp / "bad.jsonl").native()};
    CHECK_THROWS_WITH_AS(fine_tune(config), doctest::Contains(message), FormatError);
    CHECK_FALSE(std::filesystem::exists(shop.temp / "run"));
  };
  expect("{\"input_ids\":[1,2],\"labels\":[1,2]}\n{\"input_ids\":[1,2]}\n", "bad.jsonl:2");
  expect("{\"input_ids\":[1,2,61],\"labels\":[1,2,61]}\n", "61");
  expect("{\"input_ids\":[1,2],\"labels\":[-100,-100]}\n", "not one token is labelled");
  expect("", "no records");
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
  CHECK(quiet.said("3 of 6 records have no labelled token"));
  CHECK(quiet.said("step 2 has no labelled token and is skipped"));
  std::vector<Index> tokens;
  for (const auto& line : log_of(shop.temp / "run")) {
    if (!line.contains("tokens")) continue;
    tokens.push_back(line.at("tokens").get<Index>());
    CHECK(line.at("loss").is_null() == (line.at("step") == 2));
  }
  CHECK(tokens == std::vector<Index>{3, 0, 6});
}

TEST_CASE("trainer: a loss that is not finite names the step and its records, and stops or is passed over") {
  Quiet quiet;
  const Workshop shop;
  // Token 60's embedding is NaN, and one record has it.
  auto file = io::read_file(shop.temp / "model" / "model.safetensors");
  std::uint64_t header = 0;
  std::memcpy(&header, file.data(), 8);
  const auto json = io::parse_json(std::string_view(file).substr(8, header), "header");
  const auto offset = json.at("model.embed_tokens.weight").at("data_offsets").at(0).get<std::size_t>();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(file.data() + 8 + header + offset + 60 * 16 * sizeof(float), &nan, sizeof nan);
  io::write_file(shop.temp / "model" / "model.safetensors", std::string_view(file));
  std::string text;
  for (int i = 0; i < 12; ++i)
    text +=
        i == 9 ? "{\"input_ids\":[60,2,3],\"labels\":[-100,2,3]}\n" : "{\"input_ids\":[1,2,3],\"labels\":[-100,2,3]}\n";
  io::write_file(shop.temp / "nan.jsonl", std::string_view(text));
  auto config = shop.config();
  config.dataset = {(shop.temp / "nan.jsonl").native()};
  config.eval_dataset.clear();
  config.eval_steps.reset();
  config.shuffle = false;
  config.num_train_epochs = 1;
  config.save_steps = 1000;
  CHECK_THROWS_WITH_AS(fine_tune(config), doctest::Contains("step 3: loss nan"), Error);
  CHECK(train::Checkpoints(shop.temp / "run").newest()->state.step == 2);
  CHECK_FALSE(std::filesystem::exists(shop.temp / "run" / "final_model"));

  config.on_non_finite = "skip";
  config.output_dir = (shop.temp / "skip").native();
  const auto result = fine_tune(config);
  CHECK(result.metrics.steps == 3);
  CHECK(quiet.said("nan.jsonl:10"));
  for (const float value : adapter_values(result.final_model)) CHECK(std::isfinite(value));
  CHECK(adapter_values(result.final_model) == adapter_values(train::Checkpoints(shop.temp / "run").folder_of(2)));
}

TEST_CASE("trainer: a full disk is a clear error and leaves the last checkpoint good") {
  const Workshop shop;
  auto config = shop.config();
  config.max_steps = 6;
  const pid_t child = fork();
  if (child == 0) {
    log::set_sink(nullptr);
    int status = 2;
    try {
      signal(SIGXFSZ, SIG_IGN);
      RunOptions options;
      options.on_step = [](const StepMetrics& metrics) {
        if (metrics.step != 5) return;
        const rlimit limit{4000, 4000};
        setrlimit(RLIMIT_FSIZE, &limit);
      };
      fine_tune(config, options);
    } catch (const IoError&) {
      status = 0;
    } catch (...) {}
    _exit(status);
  }
  CHECK(wait_for(child) == 0);
  const Quiet quiet;
  CHECK(train::Checkpoints(shop.temp / "run").newest()->state.step == 3);
  CHECK(train::Checkpoints(shop.temp / "run").steps() == std::vector<Index>{3});
  fine_tune(shop.config("whole"));
  config = shop.config();
  config.resume_from_checkpoint = "auto";
  fine_tune(config);
}

TEST_CASE("trainer: checkpoints removed while it runs do not stop it") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  RunOptions options;
  options.on_step = [&](const StepMetrics& metrics) {
    if (metrics.step == 8) std::filesystem::remove_all(shop.temp / "run" / "checkpoints");
  };
  CHECK(fine_tune(config, options).metrics.steps == 24);
  CHECK(train::Checkpoints(shop.temp / "run").steps().front() == 9);
}

TEST_CASE("trainer: a best checkpoint that was removed or damaged while it runs is missed in words") {
  Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  config.load_best_model_at_end = true;
  config.learning_rate = 1;  // the loss goes up: the first evaluation, after step 4, stays the best
  for (const bool removed : {true, false}) {
    CAPTURE(removed);
    config.output_dir = (shop.temp / (removed ? "removed" : "damaged")).native();
    const train::Checkpoints checkpoints(config.output_dir);
    RunOptions options;
    options.on_step = [&](const StepMetrics& metrics) {
      if (metrics.step != 23) return;
      const io::Path adapter = checkpoints.folder_of(4) / "adapter_model.safetensors";
      REQUIRE(std::filesystem::exists(adapter));
      removed ? static_cast<void>(std::filesystem::remove_all(checkpoints.folder_of(4)))
              : std::filesystem::resize_file(adapter, 100);
    };
    quiet.text.clear();
    const auto result = fine_tune(config, options);
    CHECK(adapter_values(result.final_model) == adapter_values(checkpoints.folder_of(24)));
    CHECK(quiet.said(concat("cannot take the best, step 4's: ", std::string_view(removed ? "no checkpoint at " : ""),
                            checkpoints.folder_of(4).native())));
    CHECK(quiet.said("final_model is the last step's"));
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
  next.lora_rank = 8;  // not given: the default
  next.max_steps = 1;
  next.learning_rate = 0;
  next.adapter_name_or_path = first.final_model.native();
  CHECK(adapter_values(fine_tune(next).final_model) == adapter_values(first.final_model));
  const auto refuse = [&](const char* key, const char* message) {
    auto given = next;
    given.output_dir = (shop.temp / "third").native();
    given.given[key] = Config::Origin::command_line;
    CHECK_THROWS_WITH_AS(fine_tune(given), doctest::Contains(message), ConfigError);
  };
  refuse("lora_rank", "key lora_rank: given 8, but the adapter ");
  refuse("lora_target", "key lora_target: given ");
}

TEST_CASE("trainer: how many tokens fill a micro-batch changes neither the steps nor their loss") {
  const Quiet quiet;
  const Workshop shop;
  std::vector<std::vector<io::Json>> logs;
  for (const Index tokens : {0, 1, 30, 1000}) {
    Config config = shop.config(concat("run", tokens));
    config.max_steps = 4;
    config.logging_steps = 1;
    if (tokens > 0) config.max_tokens_per_micro_batch = tokens;
    fine_tune(config);
    logs.push_back(log_of(config.output_dir));
  }
  for (const auto& log : logs) {
    REQUIRE(log.size() == logs.front().size());
    for (std::size_t i = 0; i < log.size(); ++i) {
      const auto &now = log[i], &then = logs.front()[i];
      if (!now.contains("loss")) continue;
      for (const char* field : {"step", "tokens", "labelled_tokens"}) CHECK(now[field] == then[field]);
      // Sums of some hundred float32 terms in another order, and up to three updates made from such sums.
      CHECK(now["loss"].get<double>() == doctest::Approx(then["loss"].get<double>()).epsilon(1e-5));
    }
  }
}

TEST_CASE("trainer: evaluation data is read before training, not after") {
  const Quiet quiet;
  const Workshop shop;
  for (const char* bad :
       {"{\"input_ids\": [1, 2, 9999], \"labels\": [1, 2, 9999]}\n",
        "{\"input_ids\": [1, 2], \"labels\": [-100, -100]}\n", "{\"input_ids\": [1, 2], \"labels\": [1]}\n"}) {
    Config config = shop.config("unread");
    io::write_file(shop.temp / "bad.jsonl", std::string_view(bad));
    config.eval_dataset = {(shop.temp / "bad.jsonl").native()};
    CHECK_THROWS_AS(fine_tune(config), FormatError);
    CHECK_FALSE(std::filesystem::exists(shop.temp / "unread"));
  }
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
