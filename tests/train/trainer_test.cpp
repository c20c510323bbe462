#include "lora/trainer.hpp"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "lora/instantiate.hpp"
#include "support/byte_tokenizer.hpp"
#include "support/effort.hpp"
#include "support/file_faults.hpp"
#include "support/message_of.hpp"
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
  TempFolder temp = TempFolder::in_memory();

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

/// A run's TensorBoard events without what differs between two runs of the same numbers.
std::vector<std::string> events_of(const io::Path& run) {
  return test::lines_of_events(io::read_file(run / "tensorboard" / "events.out.tfevents.lora"),
                               {"train/tokens_per_second", "train/peak_memory_gib"});
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

/// What the IoError says that ends `body` in a process of its own.
template <class Body>
std::string message_of_process(const Body& body) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    std::string message = "nothing was thrown";
    try {
      body();
    } catch (const IoError& error) {
      message = error.what();
    } catch (const std::exception& error) {
      message = concat("no IoError: ", std::string_view(error.what()));
    }
    _exit(write(ends[1], message.data(), message.size()) == static_cast<ssize_t>(message.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string message;
  char buffer[512];
  for (ssize_t got = 0; (got = read(ends[0], buffer, sizeof buffer)) > 0;)
    message.append(buffer, static_cast<std::size_t>(got));
  close(ends[0]);
  CHECK(wait_for(child) == 0);
  return message;
}

/// Once it `refuses`, no file operation in `folder` succeeds any more.
struct RefusingFiles final : io::FileHook {
  RefusingFiles(io::Path where, int number)
      : folder(std::move(where)), error(number), former(io::set_file_hook(this)) {}
  RefusingFiles(const RefusingFiles&) = delete;
  RefusingFiles& operator=(const RefusingFiles&) = delete;
  ~RefusingFiles() override { io::set_file_hook(former); }

  io::FileVerdict before(const io::FileOperation& operation) override {
    const bool inside = operation.path.native().starts_with(folder.native());
    return {refuses && inside ? error : 0};
  }
  void after(const io::FileOperation&) override {}

  std::atomic<bool> refuses{false};
  const io::Path folder;
  const int error;
  io::FileHook* former;
};

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
  for (const Fault fault : {Fault::dies, Fault::dies_mid_write, Fault::loses_unsynced, Fault::loses_data, Fault::fails,
                            Fault::short_write, Fault::disk_full}) {
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

namespace {

/// The run of `config` does not go on once `change` has changed it: the error names the key and both values.
template <class Change>
void expect_refused(Config config, std::string_view key, std::string_view now, std::string_view then,
                    const Change& change) {
  change(config);
  CAPTURE(std::string(key));
  const std::string message = test::message_of<ConfigError>([&] { fine_tune(config); });
  CAPTURE(message);
  CHECK(message.starts_with(concat("key ", key, ": given ", now)));
  CHECK(test::holds(message, concat(" was made with ", then)));
}

}  // namespace

TEST_CASE("trainer: what must not change when a run goes on is an error with both values") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  config.max_steps = 3;
  fine_tune(config);
  config.resume_from_checkpoint = "auto";
  const auto expect = [&](const char* key, const std::string& now, const std::string& then, auto&& change) {
    expect_refused(config, key, now, then, change);
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
  test::RandomModel other;  // of the same extents
  other.seed = 2;
  test::write_random_model(shop.temp / "other", other);
  const std::string shape = "\"qwen3, 2 layers of 16 and 24, vocabulary of 61, weights with checksum ";
  expect("model_name_or_path", shape, shape, [&](Config& c) { c.model_name_or_path = (shop.temp / "other").native(); });
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

TEST_CASE("trainer: neither the template nor the day that it prints changes when a run goes on") {
  const Quiet quiet;
  const Workshop shop;
  test::RandomModel model;
  model.vocabulary = 260;
  test::write_random_model(shop.temp / "model", model);
  io::write_file(shop.temp / "model" / "tokenizer.json", std::string_view(test::byte_tokenizer_json()));
  io::write_file(shop.temp / "talk.jsonl", std::string_view("{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},"
                                                            "{\"role\":\"assistant\",\"content\":\"b\"}]}\n"));
  auto config = shop.config();
  config.dataset = {(shop.temp / "talk.jsonl").native()};
  config.eval_dataset.clear();
  config.eval_steps.reset();
  config.max_steps = 1;
  config.template_name = "smollm3";
  config.date = "2024-02-29";
  fine_tune(config);
  config.resume_from_checkpoint = "auto";
  expect_refused(config, "template", "\"qwen3\"", "\"smollm3\"", [](Config& c) { c.template_name = "qwen3"; });
  expect_refused(config, "date", "\"2025-01-01\"", "\"2024-02-29\"", [](Config& c) { c.date = "2025-01-01"; });
  config.date.clear();  // not today's, but the run's
  config.max_steps = 2;
  CHECK(fine_tune(config).metrics.resumed_from_step == 1);
}

TEST_CASE("trainer: an adapter to start from must choose the same modules when a run goes on") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config("first");
  config.max_steps = 1;
  const io::Path start = fine_tune(config).final_model;
  const auto adapter_with = [&](const char* name, const io::Json& fields) {
    const io::Path folder = shop.temp / name;
    std::filesystem::copy(start, folder);
    io::Json json = io::read_json(folder / "adapter_config.json");
    json.update(fields);
    io::write_json(folder / "adapter_config.json", json);
    return folder.native();
  };
  config.output_dir = (shop.temp / "run").native();
  config.adapter_name_or_path = adapter_with("one", {{"alpha_pattern", {{"q_proj", 3}}}});
  fine_tune(config);
  config.max_steps = 2;
  config.resume_from_checkpoint = "auto";
  const auto refuse = [&](const char* name, const char* key, const io::Json& fields, const char* now,
                          const char* then) {
    io::Json both = {{"alpha_pattern", {{"q_proj", 3}}}};
    both.update(fields);
    const std::string folder = adapter_with(name, both);
    expect_refused(config, key, now, then, [&](Config& c) { c.adapter_name_or_path = folder; });
  };
  refuse("two", "alpha_pattern", {{"alpha_pattern", {{"q_proj", 4}}}}, "{\"q_proj\":4.0}", "{\"q_proj\":3.0}");
  refuse("three", "rank_pattern", {{"rank_pattern", {{"q_proj", 2}}}}, "{\"q_proj\":2}", "{}");
  refuse("four", "lora_target", {{"target_modules", ".*_proj"}}, "\".*_proj\"", "[\"down_proj\",");
  refuse("five", "exclude_modules", {{"exclude_modules", "none"}}, "\"none\"", "null");
  refuse("six", "layers_to_transform", {{"layers_to_transform", {0, 1}}}, "[0,1]", "null");
  CHECK(fine_tune(config).metrics.resumed_from_step == 1);
}

TEST_CASE("trainer: a checkpoint says with which sample its run goes on, and one that stands elsewhere is refused") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  config.max_steps = 9;
  fine_tune(config);
  const train::Checkpoints checkpoints(shop.temp / "run");
  // 22 records, 4 a step: the sixth step takes the last 2.
  for (const auto& [step, next] : std::map<Index, Index>{{3, 12}, {6, 22}, {9, 34}})
    CHECK(train::Checkpoints::open(checkpoints.folder_of(step)).state.next_sample == next);
  const io::Path file = checkpoints.folder_of(9) / "trainer_state.json";
  io::Json state = io::read_json(file);
  state["next_sample"] = 36;
  state.erase("checksum");
  state["checksum"] = train::checksum_text(train::checksum(io::to_text(state)));
  io::write_json(file, state);
  config.max_steps = 10;
  config.resume_from_checkpoint = "auto";
  CHECK_THROWS_WITH_AS(fine_tune(config),
                       concat(file.native(), ": \"next_sample\" is 36; after step 9 of this run expected 34").c_str(),
                       FormatError);
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

TEST_CASE("trainer: a folder that may not be written to is a clear error, and the run in it goes on later") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  config.max_steps = 6;
  std::atomic<int> stop{0};
  RunOptions options;
  options.stop = &stop;
  options.on_step = [&](const StepMetrics& metrics) { stop = metrics.step == 4 ? SIGTERM : 0; };
  fine_tune(config, options);
  config.resume_from_checkpoint = "auto";
  const io::Path run = shop.temp / "run";
  const auto before = lasting_files(run);
  using std::filesystem::perms;
  const auto allow = [](const io::Path& path, bool writes) {
    const perms readable = perms::owner_read | perms::group_read | perms::others_read;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path))
      if (entry.is_regular_file()) permissions(entry.path(), writes ? readable | perms::owner_write : readable);
    const perms enterable = readable | perms::owner_exec | perms::group_exec | perms::others_exec;
    permissions(path, writes ? enterable | perms::owner_write : enterable);
  };
  permissions(shop.temp.path(), perms::others_exec | perms::others_read, std::filesystem::perm_options::add);
  allow(run, false);
  const auto message_of_nobody = [&] {
    return message_of_process([&] {
      constexpr uid_t nobody = 65534;  // permissions don't hold for root
      if (geteuid() == 0 && (setgid(nobody) != 0 || setuid(nobody) != 0)) fail<Error>("cannot be nobody");
      fine_tune(config);
    });
  };
  CHECK(message_of_nobody() == concat("cannot create ", (run / "training.log").native(), ": Permission denied"));
  allow(run, true);
  expect_same(before, lasting_files(run));

  const io::Path locked = shop.temp / "locked";
  io::create_folders(locked);
  allow(locked, false);
  config.output_dir = (locked / "new").native();
  CHECK(message_of_nobody() == concat("cannot create folder ", config.output_dir, ": Permission denied"));
  allow(locked, true);

  config.output_dir = run.native();
  for (const int error : {EROFS, EACCES, EDQUOT}) {  // from a moment on, as when a disk shows its first defect
    CAPTURE(error);
    RefusingFiles refusing(run, error);
    options.on_step = [&](const StepMetrics& metrics) { refusing.refuses = metrics.step == 6; };
    options.stop = nullptr;
    CHECK_THROWS_WITH_AS(fine_tune(config, options), doctest::Contains(std::generic_category().message(error).c_str()),
                         IoError);
    CHECK(train::Checkpoints(run).newest()->state.step == 4);
  }
  fine_tune(config);
  train::remove_whole_folder(train::Checkpoints(run).folder_of(4));
  config.output_dir = (shop.temp / "whole").native();
  fine_tune(config);
  expect_same(lasting_files(shop.temp / "whole"), lasting_files(run));
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

TEST_CASE(
    "trainer: a loss or gradient that is not finite names the step and its records, and stops or is passed over") {
  Quiet quiet;
  const Workshop shop;
  std::vector<test::RandomTensor> tensors;
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
    tensors = test::random_tensors({});
    cause.change();
    test::write_model(shop.temp / "model", test::config_json({}), tensors, DType::f32);
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
      CHECK(test::holds(said, records));
      CHECK(test::holds(said, concat(", ", (shop.temp / "odd.jsonl").native(), ":10, ")));
    };
    const std::string message = test::message_of<Error>([&] { fine_tune(config); });
    expect_said(message);
    const train::Checkpoints checkpoints(config.output_dir);
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
    for (const float value : adapter_values(result.final_model)) CHECK(std::isfinite(value));
    CHECK(adapter_values(result.final_model) == adapter_values(checkpoints.folder_of(2)));
  }
}

TEST_CASE("trainer: a full disk is a clear error and leaves the last checkpoint good") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  config.max_steps = 6;
  const std::string message = message_of_process([&] {
    signal(SIGXFSZ, SIG_IGN);
    RunOptions options;
    options.on_step = [](const StepMetrics& metrics) {
      if (metrics.step != 5) return;
      const rlimit limit{4000, 4000};
      setrlimit(RLIMIT_FSIZE, &limit);
    };
    fine_tune(config, options);
  });
  CHECK(message == concat("cannot write ", (shop.temp / "run/checkpoints/checkpoint-6.writing").native(),
                          "/adapter_model.safetensors.partial: File too large"));
  CHECK(train::Checkpoints(shop.temp / "run").steps() == std::vector<Index>{3});
  CHECK(train::Checkpoints(shop.temp / "run").newest()->state.step == 3);
  config.resume_from_checkpoint = "auto";
  CHECK(fine_tune(config).metrics.resumed_from_step == 3);
  config.output_dir = (shop.temp / "whole").native();
  fine_tune(config);
  expect_same(lasting_files(shop.temp / "whole"), lasting_files(shop.temp / "run"));
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
