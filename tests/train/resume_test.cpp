#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "support/byte_tokenizer.hpp"
#include "support/effort.hpp"
#include "support/file_faults.hpp"
#include "support/message_of.hpp"
#include "support/process.hpp"
#include "support/quiet.hpp"
#include "support/random_model.hpp"
#include "support/random_tokens.hpp"
#include "support/workshop.hpp"

namespace resume_test {

using namespace lora;
using namespace lora::test;

namespace {

/// Runs in a process of its own; the exit status is 0, or 1 for an error.
pid_t start_process(const Config& config) {
  const pid_t child = fork();
  if (child != 0) return child;
  log::set_sink(nullptr);
  int status = 0;
  try {
    fine_tune(config);
  } catch (const std::exception&) {
    status = 1;
  }
  _exit(status);
}

/// The run of `config` does not go on once `change` has changed it: the error names the key and both values.
template <class Change>
void expect_refused(Config config, std::string_view key, std::string_view now, std::string_view then,
                    const Change& change) {
  change(config);
  CAPTURE(std::string(key));
  const std::string message = message_of<ConfigError>([&] { fine_tune(config); });
  CAPTURE(message);
  CHECK(message.starts_with(concat("key ", key, ": given ", now)));
  CHECK(holds(message, concat(" was made with ", then)));
}

/// Evaluates and saves each of up to 12 steps, and keeps the best.
Config evaluated(const Workshop& shop) {
  auto config = shop.config();
  config.eval_steps = 1;
  config.save_steps = 1;
  config.max_steps = 12;
  config.warmup_steps = 0;
  config.eval_dataset = config.dataset;
  config.load_best_model_at_end = true;
  config.resume_from_checkpoint = "auto";
  return config;
}

/// Trains until a signal comes in step `last`, whose evaluation is left to the run that goes on.
RunResult stopped_in(Index last, const Config& config, RunOptions options = {}) {
  std::atomic<int> stop{0};
  options.stop = &stop;
  options.on_step = [&](const StepMetrics& metrics) {
    if (metrics.step == last) stop = SIGTERM;
  };
  return fine_tune(config, std::move(options));
}

/// A whole model trains instead of an adapter, in two stages, the second with a curriculum; final_model is in shards,
/// and the run may end early.
Config in_full(Config config) {
  config.finetuning_type = "full";
  config.lora_rank.reset();
  config.lora_dropout = 0;
  config.max_shard_size = "8KB";
  config.early_stopping_patience = 2;
  config.stages = {{.name = "some", .until_step = 2, .trainable = {{R"(layers\.1\.)", "embed"}}},
                   {.name = "all", .learning_rate = 3e-3, .gradient_checkpointing = true, .use_curriculum = true}};
  return config;
}

}  // namespace

TEST_CASE("resume: a run that is stopped writes a checkpoint and goes on to the bytes of the uninterrupted run") {
  const Quiet quiet;
  const Workshop shop;
  fine_tune(shop.config("whole"));
  auto config = shop.config("parts");
  config.resume_from_checkpoint = "auto";
  for (const Index stop_after : {5, 12, 16}) {
    const auto result = stopped_in(stop_after, config);
    CHECK(result.stopped_by == SIGTERM);
    CHECK(result.metrics.steps == stop_after);
    CHECK(result.final_model.empty());
    CHECK(run::Checkpoints(shop.temp / "parts").steps().back() == stop_after);
  }
  const auto result = fine_tune(config);
  CHECK(result.metrics.resumed_from_step == 16);
  CHECK(io::read_json(shop.temp / "parts" / "training_metrics.json").at("resumed_from_step") == 16);
  for (const Index step : {5, 16}) run::Checkpoints(shop.temp / "parts").remove(step);
  CHECK(events_of(shop.temp / "whole") == events_of(shop.temp / "parts"));
  expect_same(lasting_files(shop.temp / "whole"), lasting_files(shop.temp / "parts"));
}

TEST_CASE("resume: a stop that is asked for during an evaluation costs no further step") {
  Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  std::atomic<int> stop{0};
  RunOptions options;
  options.stop = &stop;
  Index evaluated = 0;
  options.on_evaluation = [&](const Evaluation& metrics) {
    evaluated = metrics.step;
    stop = SIGINT;
  };
  const auto result = fine_tune(config, options);
  CHECK(result.stopped_by == SIGINT);
  CHECK(result.metrics.steps == evaluated);
  CHECK(run::Checkpoints(shop.temp / "run").steps().back() == evaluated);
}

TEST_CASE("resume: killed twenty times at random moments, it ends with the bytes of the uninterrupted run") {
  const Workshop shop;
  bool full = false;
  SUBCASE("an adapter") {}
  SUBCASE("a whole model in stages") {
    full = true;
    write_classes(shop.temp / "train.jsonl", {"explain", "topology", "reasoning"});
  }
  const auto config_of = [&](const std::string& output) {
    return full ? in_full(shop.config(output)) : shop.config(output);
  };
  const auto start = std::chrono::steady_clock::now();
  REQUIRE(wait_for(start_process(config_of("whole"))) == 0);
  const auto whole_run =
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start);
  auto config = config_of("killed");
  config.resume_from_checkpoint = "auto";
  Random random(7);
  Index kills = 0;
  const auto wanted = effort<Index>(20, 2, "resume: 18 of 20 kills");
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

TEST_CASE("resume: whatever goes wrong at a file operation of a run, going on ends with the bytes of the whole run") {
  const Quiet quiet;
  const Workshop shop;
  bool full = false;
  SUBCASE("an adapter") {}
  SUBCASE("a whole model in stages") {
    full = true;
    write_classes(shop.temp / "train.jsonl", {"explain", "topology", "reasoning"});
  }
  const auto configure = [&](const std::string& output) {
    auto config = full ? in_full(shop.config(output)) : shop.config(output);
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
  for (const Fault fault : {Fault::dies, Fault::dies_mid_write, Fault::loses_unsynced, Fault::loses_data, Fault::fails,
                            Fault::short_write, Fault::disk_full}) {
    // A few operations of each; the saves and rotations among them are swept one by one in the checkpoints' own tests.
    constexpr auto left_out = "resume: all but one file operation that fails in each way";
    const auto number = static_cast<Index>(fault);
    if (full == (number % 2 == 0) && !effort(true, false, left_out)) continue;
    bool reached = true;
    const Index last = effort<Index>(std::numeric_limits<Index>::max(), 50 * number, left_out);
    for (Index at = effort<Index>(1 + number, 50 * number, left_out); reached && at <= last; at += 37) {
      CAPTURE(static_cast<int>(fault));
      CAPTURE(at);
      std::filesystem::remove_all(outer / "run");
      {
        FileFaults faults(outer, fault, at);
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

TEST_CASE("resume: a finished run that is resumed changes nothing, and puts a missing final_model back") {
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

TEST_CASE("resume: what must not change when a run goes on is an error with both values") {
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
  expect("step_units", "2", "1", [](Config& c) { c.step_units = 2; });
  expect("dataset", "\"5 records with checksum ", "\"22 records", [](Config& c) { c.dataset = c.eval_dataset; });
  expect("dtype", "\"bfloat16\"", "\"float32\"", [](Config& c) { c.dtype = "bfloat16"; });
  expect("val_size", "3.0", "0.0", [](Config& c) {
    c.eval_dataset.clear();
    c.val_size = 3;
  });
  expect("text_column", "\"body\"", "\"text\"", [](Config& c) { c.text_column = "body"; });
  expect("cutoff_len", "100", "2048", [](Config& c) { c.cutoff_len = 100; });
  expect("train_on_prompt", "true", "false", [](Config& c) { c.train_on_prompt = true; });
  expect("train_on_last_turn_only", "true", "false", [](Config& c) { c.train_on_last_turn_only = true; });
  RandomModel other;  // of the same extents
  other.seed = 2;
  write_random_model(shop.temp / "other", other);
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

TEST_CASE("resume: a run cannot end before the step that it goes on from") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  config.max_steps = 4;
  fine_tune(config);
  const auto before = lasting_files(shop.temp / "run");
  config.resume_from_checkpoint = "auto";
  config.max_steps = 3;
  const std::string checkpoint = (shop.temp / "run" / "checkpoints" / "checkpoint-4").native();
  CHECK(message_of<ConfigError>([&] { fine_tune(config); }) == "key max_steps: given 3, which ends with step 3, but " +
                                                                   checkpoint +
                                                                   " is step 4; allowed: that step or a later one");
  config.max_steps = -1;
  config.num_train_epochs = 0.2;
  CHECK(message_of<ConfigError>([&] { fine_tune(config); }) ==
        "key num_train_epochs: given 0.2, which ends with step 2, but " + checkpoint +
            " is step 4; allowed: that step or a later one");
  expect_same(before, lasting_files(shop.temp / "run"));
}

TEST_CASE("resume: layers without rotary embedding are compared by what the model does, not by who says it") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  config.max_steps = 2;
  config.no_rope_layers = {1};
  fine_tune(config);
  config.resume_from_checkpoint = "auto";
  config.max_steps = 3;
  expect_refused(config, "no_rope_layers", "[]", "[1]", [](Config& c) { c.no_rope_layers.clear(); });
  // The base says it now.
  io::Json json = io::read_json(shop.temp / "model" / "config.json");
  json["no_rope_layers"] = {1, 0};
  io::write_json(shop.temp / "model" / "config.json", json);
  config.no_rope_layers.clear();
  CHECK(fine_tune(config).metrics.resumed_from_step == 2);
}

TEST_CASE("resume: what the model computes with is compared, and each field that differs is named with both values") {
  const Quiet quiet;
  const Workshop shop;
  RandomModel shape;
  shape.family = "llama";
  shape.more = {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}}};
  write_random_model(shop.temp / "model", shape);
  auto config = shop.config();
  config.max_steps = 2;
  fine_tune(config);
  config.resume_from_checkpoint = "auto";
  config.max_steps = 3;
  const io::Path file = shop.temp / "model" / "config.json";
  const io::Json own = io::read_json(file);
  const auto expect = [&](const io::Json& fields, const std::string& changes) {
    io::Json json = own;
    json.update(fields);
    io::write_json(file, json);
    CHECK(message_of<ConfigError>([&] { fine_tune(config); }) ==
          concat("key model_name_or_path: the model's config.json has changed since ",
                 (shop.temp / "run" / "checkpoints" / "checkpoint-2").native(), " was made: ", changes,
                 "; a resumed run needs the same"));
  };
  // Tensors of the same shapes.
  expect({{"num_attention_heads", 8}, {"num_key_value_heads", 4}, {"head_dim", 2}},
         "num_attention_heads: was 4, is 8, num_key_value_heads: was 2, is 4, head_dim: was 4, is 2");
  expect({{"rms_norm_eps", 1e-5}}, "rms_norm_eps: was 1e-06, is 1e-05");
  expect({{"rope_scaling", {{"rope_type", "linear"}, {"factor", 4.0}}}}, "rope factor: was 2.0, is 4.0");
  expect({{"rope_scaling", nullptr}}, "rope_type: was \"linear\", is \"default\"");
  io::Json json = own;  // what means the same is the same
  json.erase("head_dim");
  json["max_position_embeddings"] = 8192;
  json["rope_scaling"] = {{"type", "linear"}, {"factor", 2}};
  io::write_json(file, json);
  CHECK(fine_tune(config).metrics.resumed_from_step == 2);
}

TEST_CASE("resume: the log's elapsed time goes on") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  config.logging_steps = 1;
  config.max_steps = 3;
  fine_tune(config);
  std::string text;  // as if the steps had been slow
  for (io::Json line : log_of(shop.temp / "run")) {
    if (line.contains("elapsed_seconds")) line["elapsed_seconds"] = 1000.0 * line["step"].get<double>();
    text += io::to_text(line, -1) + "\n";
  }
  io::write_file(shop.temp / "run" / "trainer_log.jsonl", std::string_view(text));
  config.resume_from_checkpoint = (shop.temp / "run" / "checkpoints" / "checkpoint-3").native();
  config.max_steps = 5;
  fine_tune(config);
  double last = 0;
  for (const io::Json& line : log_of(shop.temp / "run")) {
    if (!line.contains("elapsed_seconds")) continue;
    CHECK(line["elapsed_seconds"].get<double>() > last);
    last = line["elapsed_seconds"].get<double>();
  }
  CHECK(last > 3000);
  CHECK(last < 6000);  // from the step's line on, not from more
}

TEST_CASE("resume: event files lose the steps that are made again, though nothing is added to them any more") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  config.logging_steps = 1;
  config.max_steps = 6;
  fine_tune(config);
  const auto all = events_of(shop.temp / "run");
  config.resume_from_checkpoint = (shop.temp / "run" / "checkpoints" / "checkpoint-3").native();
  config.report_to = {"none"};
  fine_tune(config);
  const auto left = events_of(shop.temp / "run");
  CHECK(left.size() < all.size());
  CHECK(left.back().starts_with("3 "));
  CHECK(std::equal(left.begin(), left.end(), all.begin()));
  CHECK(log_of(shop.temp / "run").back().at("step") == 6);
}

TEST_CASE("resume: a checkpoint that is not there is named, and nothing is touched") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  config.max_steps = 1;
  fine_tune(config);
  const auto before = lasting_files(shop.temp / "run");
  for (const char* output : {"run", "other"}) {
    config.output_dir = (shop.temp / output).native();
    config.resume_from_checkpoint = (shop.temp / "run" / "checkpoints" / "checkpoint-7").native();
    CHECK_THROWS_WITH_AS(
        fine_tune(config),
        doctest::Contains(concat("key resume_from_checkpoint: given ", config.resume_from_checkpoint, ",").c_str()),
        IoError);
  }
  expect_same(before, lasting_files(shop.temp / "run"));
  CHECK_FALSE(std::filesystem::exists(shop.temp / "other"));
}

namespace {

/// A run of one step over a record of this kind, with a tokenizer of bytes.
Config run_over(const Workshop& shop, const std::string& record) {
  RandomModel model;
  model.vocabulary = 264;
  write_random_model(shop.temp / "model", model);
  io::write_file(shop.temp / "model" / "tokenizer.json", std::string_view(byte_tokenizer_json(llama_marks)));
  io::write_file(shop.temp / "data.jsonl", std::string_view(record));
  auto config = shop.config();
  config.dataset = {(shop.temp / "data.jsonl").native()};
  config.eval_dataset.clear();
  config.eval_steps.reset();
  config.max_steps = 1;
  return config;
}

/// The same over a conversation, which a template may make a thousand tokens of: one a step.
Config run_over_talk(const Workshop& shop) {
  auto config = run_over(shop, R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]})");
  config.per_device_train_batch_size = 1;
  config.gradient_accumulation_steps = 1;
  return config;
}

}  // namespace

TEST_CASE("resume: neither the template nor the day that it prints changes when a run goes on") {
  const Quiet quiet;
  for (const std::string name : {"smollm3", "llama3_1", "llama3_2"}) {
    CAPTURE(name);
    if (name == "llama3_1" && !effort(true, false, "resume: the day of one of three templates")) continue;
    const Workshop shop;
    auto config = run_over_talk(shop);
    config.template_name = name;
    config.date = "2024-02-29";
    fine_tune(config);
    config.resume_from_checkpoint = "auto";
    expect_refused(config, "template", "\"qwen3\"", "\"" + name + "\"", [](Config& c) {
      c.template_name = "qwen3";
      c.date.clear();
    });
    expect_refused(config, "date", "\"2025-01-01\"", "\"2024-02-29\"", [](Config& c) { c.date = "2025-01-01"; });
    config.date.clear();  // not today's, nor the template's own, but the run's
    config.max_steps = 2;
    CHECK(fine_tune(config).metrics.resumed_from_step == 1);
    CHECK(io::read_json(shop.temp / "run" / "run_config.json").at("date") == "2024-02-29");
  }
}

TEST_CASE("resume: a tokenizer that reads text otherwise is refused, and what differs in it is named") {
  const Quiet quiet;
  const Workshop shop;
  auto config = run_over_talk(shop);
  config.template_name = "chatml";
  io::write_json(shop.temp / "model" / "tokenizer_config.json", {{"tokenizer_class", "PreTrainedTokenizerFast"}});
  fine_tune(config);
  config.resume_from_checkpoint = "auto";
  config.max_steps = 2;
  const io::Path file = shop.temp / "model" / "tokenizer.json";
  const io::Json own = io::read_json(file);
  const auto expect = [&](const auto& change, const std::string& changes) {
    io::Json json = own;
    change(json);
    io::write_json(file, json);
    CHECK(message_of<ConfigError>([&] { fine_tune(config); }) ==
          concat("key model_name_or_path: the tokenizer has changed since ",
                 (shop.temp / "run" / "checkpoints" / "checkpoint-1").native(), " was made: ", changes,
                 "; a resumed run needs the same"));
  };
  expect([](io::Json& json) { std::swap(json["model"]["vocab"]["a"], json["model"]["vocab"]["b"]); },
         "its vocabulary differs");
  expect([](io::Json& json) { json["added_tokens"][2]["rstrip"] = true; }, "its added tokens differ");
  expect([](io::Json& json) { json["normalizer"] = nullptr; }, "its normalizer differs");
  io::write_json(file, own);
  CHECK(fine_tune(config).metrics.resumed_from_step == 1);
}

TEST_CASE("resume: enable_thinking stays where the template depends on it, and is refused where it does not") {
  const Quiet quiet;
  for (const std::string name : {"qwen3", "smollm3"}) {
    CAPTURE(name);
    const Workshop shop;
    auto config = run_over_talk(shop);
    config.template_name = name;
    config.enable_thinking = false;
    fine_tune(config);
    config.resume_from_checkpoint = "auto";
    expect_refused(config, "enable_thinking", "true", "false", [](Config& c) { c.enable_thinking = true; });
    config.enable_thinking.reset();  // as the run began
    config.max_steps = 2;
    CHECK(fine_tune(config).metrics.resumed_from_step == 1);
    CHECK(io::read_json(shop.temp / "run" / "run_config.json").at("enable_thinking") == false);
  }
  const Workshop shop;
  auto config = run_over_talk(shop);
  config.template_name = "qwen2_5";
  config.enable_thinking = true;
  CHECK(message_of<ConfigError>([&] { fine_tune(config); }) ==
        "key enable_thinking: given true, but the template qwen2_5 writes the same for both values");
  config.enable_thinking.reset();
  config.date = "2024-02-29";
  CHECK(message_of<ConfigError>([&] { fine_tune(config); }) ==
        "key date: given 2024-02-29, but the template qwen2_5 prints no date");
  auto tokens = shop.config();
  tokens.date = "2024-02-29";
  CHECK(holds(message_of<ConfigError>([&] { fine_tune(tokens); }), "key date: given 2024-02-29, but no record is"));
}

TEST_CASE("resume: a run over long texts goes on to the bytes of the uninterrupted run") {
  const Quiet quiet;
  const Workshop shop;
  std::string text = "{\"text\":\"short\"}\n";
  for (int i = 0; i < 3; ++i)
    text += "{\"text\":\"" + std::string(static_cast<std::size_t>(90 + 20 * i), static_cast<char>('a' + i)) + "\"}\n";
  auto config = run_over(shop, text);
  config.cutoff_len = 16;
  config.max_steps = -1;
  config.num_train_epochs = 1;
  config.save_steps = 2;
  config.output_dir = (shop.temp / "whole").native();
  const auto whole = fine_tune(config);
  // 1 block and, of 90, 110 and 130 bytes without an opening token, 6, 8 and 9 that learn 15 tokens each
  CHECK(whole.metrics.steps == (1 + 6 + 8 + 9) / 4);
  config.output_dir = (shop.temp / "parts").native();
  std::atomic<int> stop{0};
  RunOptions options;
  options.stop = &stop;
  options.on_step = [&](const StepMetrics& metrics) { stop = metrics.step == 3 ? SIGTERM : 0; };
  CHECK(fine_tune(config, options).metrics.steps == 3);
  config.resume_from_checkpoint = "auto";
  expect_refused(config, "cutoff_len", "20", "16", [](Config& c) { c.cutoff_len = 20; });
  CHECK(fine_tune(config).metrics.resumed_from_step == 3);
  CHECK(adapter_values(shop.temp / "parts" / "final_model") == adapter_values(shop.temp / "whole" / "final_model"));
}

TEST_CASE("resume: an adapter to start from must choose the same modules when a run goes on") {
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

TEST_CASE("resume: a run goes on from the adapter that it began with, wherever that lies now, and from no other") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config("first");
  config.max_steps = 1;
  const io::Path start = shop.temp / "start";
  std::filesystem::copy(fine_tune(config).final_model, start);
  config.max_steps = 2;
  config.resume_from_checkpoint = "auto";
  expect_refused(config, "adapter_name_or_path", "\"weights with checksum ", "null",
                 [&](Config& c) { c.adapter_name_or_path = start.native(); });
  config.resume_from_checkpoint.clear();
  config.output_dir = (shop.temp / "run").native();
  config.adapter_name_or_path = start.native();
  const io::Path other = fine_tune(config).final_model;
  config.max_steps = 3;
  config.resume_from_checkpoint = "auto";
  const auto refuse = [&](const std::string& now, const io::Path& adapter) {
    expect_refused(config, "adapter_name_or_path", now, "\"weights with checksum ",
                   [&](Config& c) { c.adapter_name_or_path = adapter.native(); });
  };
  std::filesystem::copy(other, shop.temp / "other");
  refuse("\"weights with checksum ", shop.temp / "other");
  refuse("null", {});
  std::filesystem::copy(start, shop.temp / "moved");
  config.adapter_name_or_path = (shop.temp / "moved").native();
  CHECK(fine_tune(config).metrics.resumed_from_step == 2);
}

TEST_CASE("resume: a checkpoint says with which sample its run goes on, and one that stands elsewhere is refused") {
  const Quiet quiet;
  const Workshop shop;
  auto config = shop.config();
  config.max_steps = 9;
  fine_tune(config);
  const run::Checkpoints checkpoints(shop.temp / "run");
  // 22 records, 4 a step: the sixth step takes the last 2.
  for (const auto& [step, next] : std::map<Index, Index>{{3, 12}, {6, 22}, {9, 34}})
    CHECK(run::Checkpoints::open(checkpoints.folder_of(step)).state.next_sample == next);
  const io::Path file = checkpoints.folder_of(9) / "trainer_state.json";
  io::Json state = io::read_json(file);
  state["next_sample"] = 36;
  state.erase("checksum");
  state["checksum"] = checksum_text(checksum(io::to_text(state)));
  io::write_json(file, state);
  config.max_steps = 10;
  config.resume_from_checkpoint = "auto";
  CHECK_THROWS_WITH_AS(fine_tune(config),
                       concat(file.native(), ": \"next_sample\" is 36; after step 9 of this run expected 34").c_str(),
                       FormatError);
}

TEST_CASE("resume: a best checkpoint that is gone is not the best any more, and that of the steps after it is taken") {
  Quiet quiet;
  const Workshop shop;
  auto config = evaluated(shop);
  // Four steps that learn, and from then on such as spoil it.
  for (const Index last : {4, 6}) {
    config.learning_rate = last == 4 ? 0.03 : 5;
    stopped_in(last, config);
  }
  const run::Checkpoints checkpoints(shop.temp / "run");
  const auto state = checkpoints.newest()->state;
  REQUIRE(state.step == 6);
  REQUIRE(state.best_step == 4);
  checkpoints.remove(4);
  const auto result = fine_tune(config);
  Index best = 0;
  double lowest = INFINITY;
  for (const auto& line : log_of(shop.temp / "run")) {
    // That of step 6 was stopped, and is made up for by the run that goes on.
    if (!line.contains("eval_loss") || line.at("step") < 6 || line.at("eval_loss") >= lowest) continue;
    lowest = line.at("eval_loss");
    best = line.at("step");
  }
  REQUIRE(lowest > *state.best_eval_loss);
  REQUIRE(best < 12);
  CHECK(adapter_values(result.final_model) == adapter_values(checkpoints.folder_of(best)));
  CHECK(result.metrics.best_eval_loss == lowest);
  CHECK_FALSE(quiet.said("cannot take the best"));
  CHECK(quiet.said("load_best_model_at_end can't load the best checkpoint, step 4's: no checkpoint at "));
}

TEST_CASE(
    "resume: with other records to evaluate on, the best evaluation and patience begin anew, and a line says so") {
  Quiet quiet;
  const Workshop shop;
  auto config = evaluated(shop);
  config.early_stopping_patience = 4;
  config.save_total_limit = 1;
  const run::Checkpoints checkpoints(shop.temp / "run");
  const auto train_until = [&](Index last) {
    RunOptions options;
    options.on_evaluation = [&](const Evaluation& evaluation) {
      // The best stays until there is a newer checkpoint, though it counts no more.
      if (last == 8 && evaluation.step == 7) CHECK(io::is_there(checkpoints.folder_of(4)));
    };
    stopped_in(last, config, std::move(options));
    return checkpoints.newest()->state;
  };
  config.learning_rate = 0.03;
  REQUIRE(train_until(4).best_step == 3);
  config.learning_rate = 5;  // spoils it
  const auto before = train_until(6);
  REQUIRE((before.best_step == 4 && before.evaluations_without_improvement > 0));
  CHECK(before.evaluated_records.starts_with("22 records with checksum "));

  const io::Path others = shop.temp / "others.jsonl";  // elsewhere the same records are the same
  config.eval_dataset = {others.native()};
  io::copy_file(shop.temp / "train.jsonl", others);
  REQUIRE(train_until(7).best_step == 4);
  CHECK_FALSE(quiet.said("evaluations were of"));

  write_tokens(others, 1, 3);
  const auto after = train_until(8);
  CHECK(after.evaluated_records.starts_with("1 records with checksum "));
  CHECK(after.best_step == 7);
  REQUIRE(after.to_beat);
  CHECK(after.to_beat->second == 7);
  CHECK(after.evaluations_without_improvement == 0);
  CHECK(after.best_eval_loss == after.last_eval_loss);
  CHECK(quiet.said(concat("evaluations were of ", before.evaluated_records, ", and go on with ",
                          after.evaluated_records, "; the best of them and early stopping's patience begin anew")));
  CHECK_FALSE(io::is_there(checkpoints.folder_of(4)));

  config.max_steps = 9;
  REQUIRE(train_until(9).evaluation_due);  // all that is left to do
  write_tokens(others, 2, 3);
  CHECK(fine_tune(config).metrics.best_step == 9);
  CHECK(checkpoints.newest()->state.evaluated_records.starts_with("2 records with checksum "));
}

TEST_CASE("resume: on another number of threads, which checkpoints have, a line says so where steps are left") {
  Quiet quiet;
  const Workshop shop;
  Config config = shop.config();
  config.resume_from_checkpoint = "auto";
  const std::string said = "the steps so far ran on 1 thread a process, those to come run on 2; the last bits";
  const run::Checkpoints checkpoints(shop.temp / "run");
  for (const Index last : {2, 4}) stopped_in(last, config);
  CHECK(checkpoints.newest()->state.threads == 1);
  CHECK_FALSE(quiet.said("the steps so far ran on"));
  config.threads = 2;
  stopped_in(6, config);
  CHECK(checkpoints.newest()->state.threads == 2);
  CHECK(quiet.said(said));
  config.max_steps = 6;
  config.threads = 1;
  fine_tune(config);  // has nothing left to do
  CHECK_FALSE(quiet.said("ran on 2 threads"));
}

TEST_CASE(
    "resume: patience remembers the best evaluation, though its checkpoint is gone, and one unreadable is named") {
  Quiet quiet;
  const Workshop shop;
  auto config = evaluated(shop);
  config.early_stopping_patience = 3;
  for (const Index last : {4, 6}) {  // steps that learn, and such as spoil it
    config.learning_rate = last == 4 ? 0.03 : 5;
    stopped_in(last, config);
  }
  const run::Checkpoints checkpoints(shop.temp / "run");
  REQUIRE(checkpoints.newest()->state.best_step == 4);
  const io::Path weights = checkpoints.folder_of(4) / "adapter_model.safetensors";
  std::filesystem::remove(weights);
  std::filesystem::create_symlink(weights, weights);  // a loop, which root can't open either
  const auto log = io::read_file(shop.temp / "run" / "trainer_log.jsonl");
  CHECK_THROWS_WITH_AS(fine_tune(config), doctest::Contains(weights.c_str()), IoError);
  CHECK(io::read_file(shop.temp / "run" / "trainer_log.jsonl") == log);
  std::filesystem::remove_all(checkpoints.folder_of(4));
  CHECK(fine_tune(config).metrics.steps == 7);  // the third that is no better, after 5 and 6
  CHECK(quiet.said("load_best_model_at_end can't load the best checkpoint, step 4's: no checkpoint at "));
  CHECK(holds(io::read_file(shop.temp / "run" / "training.log"), "can't load the best checkpoint, step 4's"));
  CHECK(quiet.said("the best was step 4's"));
}

TEST_CASE("resume: another run's checkpoint gives no right to a folder with something in it") {
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

}  // namespace resume_test
