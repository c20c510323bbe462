// What a run changes in output_dir: only what runs have written there, and never what it reads.

#include <doctest/doctest.h>
#include <signal.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "support/message_of.hpp"
#include "support/quiet.hpp"
#include "support/workshop.hpp"

namespace own_files_test {

using namespace lora;
using namespace lora::test;

namespace {

/// Every file and link below a folder, with what it holds or where it leads.
std::map<std::string, std::string> all_files(const io::Path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string name = entry.path().lexically_relative(folder).native();
    if (entry.is_symlink()) {
      files[name] = "-> " + std::filesystem::read_symlink(entry.path()).native();
    } else {
      files[name] = entry.is_regular_file() ? io::read_file(entry.path()) : "a folder";
    }
  }
  return files;
}

/// The run is refused with these words, and nothing below `folder` has changed.
void expect_refused(const Config& config, const io::Path& folder, const std::string& words) {
  CAPTURE(words);
  const auto before = all_files(folder);
  const std::string message = message_of<ConfigError>([&] { fine_tune(config); });
  CAPTURE(message);
  CHECK(holds(message, words));
  CHECK(all_files(folder) == before);
}

struct Subject : Workshop {
  Quiet quiet;
  io::Path run = temp / "run";

  Config short_run(Index steps = 2) const {
    Config config = this->config();
    config.max_steps = steps;
    config.save_steps = 1;
    config.logging_steps = 1;
    config.eval_steps.reset();
    config.eval_dataset.clear();
    return config;
  }
  Config overwriting(Index steps = 2) const {
    Config config = short_run(steps);
    config.overwrite_output_dir = true;
    return config;
  }
  Config going_on(Index steps = 2) const {
    Config config = short_run(steps);
    config.resume_from_checkpoint = "auto";
    return config;
  }
};

/// Refuses operations that `refuses` picks, as a disk without room does.
struct FullDisk final : io::FileHook {
  std::function<bool(const io::FileOperation&)> refuses;
  io::FileHook* former;
  explicit FullDisk(std::function<bool(const io::FileOperation&)> which)
      : refuses(std::move(which)), former(io::set_file_hook(this)) {}
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;
  ~FullDisk() override { io::set_file_hook(former); }
  io::FileVerdict before(const io::FileOperation& operation) override { return {refuses(operation) ? ENOSPC : 0}; }
  void after(const io::FileOperation&) override {}
};

}  // namespace

TEST_CASE("own files: what a run reads may not lie where it writes") {
  const Subject s;
  using std::filesystem::copy_options;
  SUBCASE("the base model among the checkpoints") {
    std::filesystem::create_directories(s.run / "checkpoints");
    std::filesystem::copy(s.temp / "model", s.run / "checkpoints" / "Qwen", copy_options::recursive);
    auto config = s.overwriting();
    config.model_name_or_path = (s.run / "checkpoints" / "Qwen").native();
    expect_refused(config, s.run,
                   "key model_name_or_path: given " + config.model_name_or_path + ", which lies in " +
                       (s.run / "checkpoints").native());
  }
  SUBCASE("a base model whose file is a link into the folder") {
    std::filesystem::create_directories(s.run / "checkpoints");
    std::filesystem::rename(s.temp / "model" / "model.safetensors", s.run / "checkpoints" / "weights");
    std::filesystem::create_symlink(s.run / "checkpoints" / "weights", s.temp / "model" / "model.safetensors");
    expect_refused(s.overwriting(), s.run, "key model_name_or_path");
  }
  SUBCASE("an adapter to start from that is the last run's") {
    fine_tune(s.short_run());
    auto config = s.overwriting();
    config.adapter_name_or_path = (s.run / "final_model").native();
    expect_refused(config, s.run, "key adapter_name_or_path");
    std::filesystem::create_directory_symlink(s.run, s.temp / "other name");
    config.adapter_name_or_path = (s.temp / "other name" / "final_model").native();
    expect_refused(config, s.run, "key adapter_name_or_path");
  }
  SUBCASE("a data set among the checkpoints, or under the name of a run's file") {
    std::filesystem::create_directories(s.run / "checkpoints");
    std::filesystem::copy(s.temp / "train.jsonl", s.run / "checkpoints" / "train.jsonl");
    auto config = s.overwriting();
    config.dataset = {(s.run / "checkpoints" / "train.jsonl").native()};
    expect_refused(config, s.run, "key dataset");
    std::filesystem::create_hard_link(s.temp / "eval.jsonl", s.run / "trainer_log.jsonl");
    config = s.overwriting();
    config.eval_dataset = {(s.temp / "eval.jsonl").native()};
    expect_refused(config, s.run, "key eval_dataset");
  }
}

TEST_CASE("own files: a data set that lies in output_dir outlives every run there") {
  const Subject s;
  std::filesystem::create_directories(s.run);
  std::filesystem::copy(s.temp / "train.jsonl", s.run / "train.jsonl");
  auto config = s.overwriting();
  config.dataset = {(s.run / "train.jsonl").native()};
  fine_tune(config);
  fine_tune(config);
  CHECK(io::read_file(s.run / "train.jsonl") == io::read_file(s.temp / "train.jsonl"));
}

TEST_CASE("own files: a run may write into the folder of its own base, again and again") {
  const Subject s;
  auto config = s.overwriting();
  config.output_dir = config.model_name_or_path;
  fine_tune(config);
  fine_tune(config);
  config.resume_from_checkpoint = "auto";
  config.max_steps = 3;
  CHECK(fine_tune(config).metrics.resumed_from_step == 2);
}

TEST_CASE("own files: a stranger's files stay, whatever they are called") {
  const Subject s;
  io::create_folders(s.run / "chapters.writing");
  io::write_file(s.run / "chapters.writing" / "1", std::string_view("a novel"));
  io::write_file(s.run / "a.replaced", std::string_view("c"));
  io::create_folders(s.run / "checkpoints" / "checkpoint-100");
  io::write_file(s.run / "checkpoints" / "checkpoint-100" / "model.bin", std::string_view("another trainer's"));
  io::create_folders(s.run / "tensorboard");
  io::write_file(s.run / "tensorboard" / "events.out.tfevents.mine", std::string_view("other events"));
  const auto before = all_files(s.run);
  const auto all_there = [&] {
    const auto now = all_files(s.run);
    for (const auto& file : before) {
      const auto& name = file.first;
      const auto& content = file.second;
      CAPTURE(name);
      REQUIRE(now.contains(name));
      CHECK(now.at(name) == content);
    }
  };
  fine_tune(s.going_on());
  all_there();
  auto again = s.overwriting();
  again.save_total_limit = 1;
  fine_tune(again);
  all_there();
  CHECK(run::Checkpoints(s.run).own_steps() == std::vector<Index>{2});
}

TEST_CASE("own files: what stands in a run's way and no run wrote is named, before anything is touched") {
  for (const bool overwrites : {false, true}) {
    CAPTURE(overwrites);
    const auto check = [&](const std::function<void(const Subject&)>& make, const std::string& words) {
      const Subject s;
      io::create_folders(s.run);
      io::write_file(s.temp / "victim", std::string_view("kept"));
      io::create_folders(s.temp / "elsewhere" / "checkpoint-7");
      make(s);
      expect_refused(overwrites ? s.overwriting() : s.going_on(), s.temp.path(), words);
    };
    const auto write = [](const io::Path& path) { io::write_file(path, std::string_view("mine")); };
    for (const char* name : {"training.log", "trainer_log.jsonl", "run_config.json", "profile.md"})
      check([&](const Subject& s) { write(s.run / name); }, name);
    for (const char* name : {"training.log", "run_config.json", "training_metrics.json"})
      check([&](const Subject& s) { std::filesystem::create_symlink(s.temp / "victim", s.run / name); }, name);
    for (const char* name : {"checkpoints", "tensorboard", "final_model"})
      check([&](const Subject& s) { std::filesystem::create_directory_symlink(s.temp / "elsewhere", s.run / name); },
            "which is no folder");
    check([&](const Subject& s) { write(s.run / "checkpoints"); }, "which is no folder");
    const auto check_instead_of_a_runs = [&](const char* name, const std::function<void(const Subject&)>& make) {
      check(
          [&](const Subject& s) {
            fine_tune(s.short_run());
            std::filesystem::remove(s.run / name);
            make(s);
          },
          concat(name, " is in the way, which is no regular file"));
    };
    check_instead_of_a_runs("trainer_log.jsonl", [](const Subject& s) {
      std::filesystem::create_symlink(s.temp / "victim", s.run / "trainer_log.jsonl");
    });
    check_instead_of_a_runs("training_metrics.json",
                            [](const Subject& s) { io::create_folders(s.run / "training_metrics.json"); });
    check(
        [&](const Subject& s) {
          io::create_folders(s.run / "final_model");
          write(s.run / "final_model" / "adapter_config.json");
        },
        "final_model");
    check(
        [&](const Subject& s) {
          io::create_folders(s.run / "checkpoints" / "checkpoint-2");
          write(s.run / "checkpoints" / "checkpoint-2" / "notes");
        },
        "checkpoint-2");
  }
}

TEST_CASE("own files: every file that a run writes is known as a run's, and goes with a run that is overwritten") {
  const Subject s;
  Config config = s.short_run();
  config.profile = true;
  fine_tune(config);
  std::vector<std::string> names;
  for (const char* folder : {"", "tensorboard"})
    for (const auto& entry : std::filesystem::directory_iterator(s.run / folder))
      if (entry.is_regular_file()) names.push_back(entry.path().lexically_relative(s.run).native());
  CHECK(names.size() == 10);
  for (const std::string& name : names) {
    CAPTURE(name);
    const Subject other;
    io::create_folders((other.run / name).parent_path());
    io::write_file(other.run / name, std::string_view("mine"));
    expect_refused(other.overwriting(), other.temp.path(), concat(name, " is in the way"));
    if (name == "run_config.json") continue;
    io::write_file(s.run / name, std::string_view("of the run before"));
  }
  RunOptions options;
  options.on_step = [&](const StepMetrics&) {
    for (const std::string& name : names) {
      CAPTURE(name);
      CHECK((!io::is_there(s.run / name) || !holds(io::read_file(s.run / name), "of the run before")));
    }
  };
  fine_tune(s.overwriting(), options);
}

TEST_CASE("own files: a final_model that somebody added to is not replaced") {
  const Subject s;
  fine_tune(s.short_run());
  io::write_file(s.run / "final_model" / "model.gguf", std::string_view("converted"));
  expect_refused(s.overwriting(), s.run, "it holds model.gguf, which no run wrote there");
  expect_refused(s.going_on(3), s.run, "it holds model.gguf");
  const auto before = all_files(s.run / "final_model");
  fine_tune(s.going_on());  // finished: nothing is replaced
  CHECK(all_files(s.run / "final_model") == before);
}

TEST_CASE("own files: an overwritten run's final_model stays until the new one is complete") {
  const Subject s;
  auto first = s.short_run();
  first.seed = 1;
  const auto old = adapter_values(fine_tune(first).final_model);
  RunOptions options;
  options.on_step = [&](const StepMetrics& metrics) {
    CHECK(adapter_values(s.run / "final_model") == old);
    CHECK(run::Checkpoints(s.run).steps().size() == static_cast<std::size_t>(metrics.step - 1));
    CHECK(log_of(s.run).size() == static_cast<std::size_t>(metrics.step));
    CHECK_FALSE(std::filesystem::exists(s.run / "training_metrics.json"));
  };
  {
    const FullDisk disk([&](const io::FileOperation& operation) {
      return holds(operation.path.native(), "final_model.");  // the last thing that is written
    });
    CHECK_THROWS_AS(fine_tune(s.overwriting(), options), IoError);
  }
  CHECK(adapter_values(s.run / "final_model") == old);
  // The run has all its steps: going on only puts its final_model in place.
  const auto done = fine_tune(s.going_on());
  CHECK(done.metrics.resumed_from_step == 2);
  CHECK(adapter_values(s.run / "final_model") == adapter_values(s.run / "checkpoints" / "checkpoint-2"));
  CHECK(adapter_values(s.run / "final_model") != old);
}

TEST_CASE("own files: a finished run that lost its best checkpoint keeps its final_model") {
  const Subject s;
  auto config = s.config();
  config.load_best_model_at_end = true;
  config.learning_rate = 1;  // the loss goes up: the first evaluation stays the best
  fine_tune(config);
  const auto best = adapter_values(s.run / "final_model");
  run::Checkpoints(s.run).remove(4);
  config.resume_from_checkpoint = "auto";
  fine_tune(config);
  CHECK(adapter_values(s.run / "final_model") == best);
}

TEST_CASE("own files: starting anew over an earlier run's results has to be asked for") {
  const Subject s;
  fine_tune(s.short_run(3));
  for (const Index step : {1, 2, 3})
    std::filesystem::resize_file(s.run / concat("checkpoints/checkpoint-", step, "/adapter_model.safetensors"), 10);
  expect_refused(s.going_on(), s.run, "holds checkpoints, of which none is whole; hint: overwrite_output_dir true");
  std::filesystem::remove_all(s.run / "checkpoints");
  expect_refused(s.going_on(), s.run, "holds final_model, but no checkpoint to go on with");
  auto both = s.overwriting();
  both.resume_from_checkpoint = "auto";
  CHECK(fine_tune(both).metrics.resumed_from_step == 0);
  both.max_steps = 3;
  CHECK(fine_tune(both).metrics.resumed_from_step == 2);  // there is something to go on with now
}

TEST_CASE("own files: a checkpoint that can't be read ends the run, also where it may overwrite") {
  const Subject s;
  fine_tune(s.short_run());
  const io::Path file = s.run / "checkpoints/checkpoint-2/optimizer.safetensors";
  std::filesystem::remove(file);
  std::filesystem::create_symlink(file, file);  // a loop, which root can't open either
  for (auto config : {s.going_on(3), s.overwriting(3)}) {
    config.resume_from_checkpoint = "auto";
    const auto before = all_files(s.run);
    CHECK_THROWS_WITH_AS(fine_tune(config), doctest::Contains(file.c_str()), IoError);
    CHECK(all_files(s.run) == before);
  }
}

TEST_CASE(
    "own files: going on from another folder leaves nothing of an overwritten run but final_model, until the end") {
  const Subject s;
  auto source = s.config("source");
  source.max_steps = 8;
  source.load_best_model_at_end = true;
  fine_tune(source);
  auto stranger = s.config();
  stranger.seed = 7;
  stranger.load_best_model_at_end = true;
  fine_tune(stranger);
  auto config = source;
  config.output_dir = s.run.native();
  config.overwrite_output_dir = true;
  config.max_steps = 10;
  config.resume_from_checkpoint = (s.temp / "source/checkpoints/checkpoint-6").native();
  RunOptions options;
  bool looked = false;
  options.on_step = [&](const StepMetrics& metrics) {
    if (metrics.step == 7) looked = run::Checkpoints(s.run).steps().empty();
  };
  CHECK(fine_tune(config, options).metrics.resumed_from_step == 6);
  CHECK(looked);
  for (const io::Json& line : log_of(s.run)) CHECK(line.at("step").get<Index>() > 6);
  for (const Index step : run::Checkpoints(s.run).steps())
    CHECK(run::Checkpoints::open(run::Checkpoints(s.run).folder_of(step)).state.settings.at("seed") == 42);
}

TEST_CASE("own files: a best checkpoint of another run is not taken for this one's") {
  Subject s;
  auto config = s.config();
  config.load_best_model_at_end = true;
  config.learning_rate = 1;  // the first evaluation, after step 4, stays the best
  auto other = config;
  other.output_dir = (s.temp / "other").native();
  other.seed = 7;
  other.max_steps = 4;
  fine_tune(other);
  RunOptions options;
  options.on_step = [&](const StepMetrics& metrics) {
    if (metrics.step != 23) return;
    run::Checkpoints(s.run).remove(4);
    std::filesystem::copy(s.temp / "other/checkpoints/checkpoint-4", s.run / "checkpoints/checkpoint-4");
  };
  fine_tune(config, options);
  CHECK(adapter_values(s.run / "final_model") == adapter_values(s.run / "checkpoints" / "checkpoint-24"));
  CHECK(s.quiet.said("is not of this run"));
}

TEST_CASE("own files: without room for a checkpoint no run begins, and nothing is overwritten") {
  const Subject s;
  fine_tune(s.short_run());
  const auto before = all_files(s.run);
  const FullDisk disk([](const io::FileOperation& operation) {
    return operation.kind == io::FileOperation::Kind::measure && operation.bytes > 1'000'000;
  });
  CHECK_THROWS_WITH_AS(fine_tune(s.overwriting()), doctest::Contains("no room for a checkpoint in "), IoError);
  CHECK(all_files(s.run) == before);
  Config ended = s.short_run();
  ended.resume_from_checkpoint = "auto";
  CHECK_NOTHROW(fine_tune(ended));  // which saves none
}

TEST_CASE("own files: a path that is no UTF-8 is refused, since run_config.json could not repeat it") {
  const Subject s;
  auto config = s.short_run();
  config.output_dir = (s.temp / "caf\xe9").native();
  CHECK_THROWS_WITH_AS(fine_tune(config), doctest::Contains("key output_dir: given "), ConfigError);
  config = s.short_run();
  config.dataset = {config.dataset[0], (s.temp / "caf\xe9.jsonl").native()};
  CHECK_THROWS_WITH_AS(fine_tune(config), doctest::Contains("key dataset: given "), ConfigError);
  CHECK_FALSE(std::filesystem::exists(s.run));
}

TEST_CASE("own files: a stop during an evaluation is heard, and the run that goes on evaluates first") {
  const Subject s;
  auto config = s.config();
  config.load_best_model_at_end = true;
  fine_tune(config);
  const auto whole = lasting_files(s.run);
  config.output_dir = (s.temp / "parts").native();
  config.resume_from_checkpoint = "auto";
  for (const Index stop_at : {12, 24}) {  // 24 is the last
    CAPTURE(stop_at);
    std::atomic<int> stop{0};
    RunOptions options;
    options.stop = &stop;
    options.on_step = [&](const StepMetrics& metrics) {
      if (metrics.step == stop_at) stop = SIGTERM;
    };
    options.on_evaluation = [&](const Evaluation& metrics) { CHECK(metrics.step != stop_at); };
    const auto result = fine_tune(config, options);
    CHECK(result.stopped_by == SIGTERM);
    CHECK(result.final_model.empty());
    CHECK(run::Checkpoints(config.output_dir).newest()->state.evaluation_due);
    options.on_step = {};
    options.on_evaluation = [&](const Evaluation&) { FAIL("it was to stop before"); };
    CHECK(fine_tune(config, options).stopped_by == SIGTERM);  // still set
  }
  fine_tune(config);
  expect_same(whole, lasting_files(config.output_dir));
  CHECK(events_of(s.run) == events_of(config.output_dir));
  CHECK(io::read_json(s.temp / "parts/training_metrics.json").contains("best_eval_loss"));
}

TEST_CASE("own files: an evaluation stops between two batches") {
  const Subject s;
  cpu::Device dev(1);
  const auto source = model::Source::open(s.temp / "model");
  model::Decoder<cpu::Device, float> decoder(dev, source);
  std::atomic<int> stop{0};
  Index asked = 0;
  const auto example_of = [&](Index i) {
    if (++asked == 3) stop = SIGINT;
    data::Example example;
    example.record = i;
    example.tokens = {1, 2, 3};
    example.labels = {1, 2, 3};
    return example;
  };
  const auto totals = train::evaluate(dev, decoder, 1000, example_of, {.window = 100, .stop = &stop});
  CHECK(totals.stopped);
  CHECK(asked == 3);

  data::Example text;  // of many batches
  text.tokens.assign(300, 1);
  text.labels = text.tokens;
  stop = 0;
  Index batches = 0;
  const auto see = [&](const model::Evaluation&) {
    if (++batches == 2) stop = SIGINT;
  };
  CHECK(
      train::evaluate(dev, decoder, 1, [&](Index) { return text; }, {.window = 8, .see = see, .stop = &stop}).stopped);
  CHECK(batches == 2);
}

TEST_CASE("own files: every byte of the base counts when a run goes on") {
  const Subject s;
  fine_tune(s.short_run(1));
  const io::Path weights = s.temp / "model" / "model.safetensors";
  std::string bytes = io::read_file(weights);
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  const std::size_t data = sizeof header + header;
  for (const std::size_t at : {std::size_t{100}, std::size_t{1700}, bytes.size() - data - 1}) {
    CAPTURE(at);
    std::string changed = bytes;
    changed[data + at] = static_cast<char>(changed[data + at] ^ 1);
    io::write_file(weights, std::string_view(changed));
    CHECK_THROWS_WITH_AS(fine_tune(s.going_on()), doctest::Contains("key model_name_or_path: given "), ConfigError);
  }
  io::write_file(weights, std::string_view(bytes));
  CHECK(fine_tune(s.going_on()).metrics.resumed_from_step == 1);
}

TEST_CASE("own files: a checkpoint of an earlier version, which noted samples of the base, goes on") {
  const Subject s;
  const io::Path fixture = io::Path(LORA_FIXTURES) / "checkpoints" / "sampled_base" / "checkpoint-3";
  auto config = s.short_run(5);
  config.lora_target = {"q_proj", "v_proj"};
  config.resume_from_checkpoint = fixture.native();
  CHECK(fine_tune(config).metrics.resumed_from_step == 3);
  const auto noted = [&](Index step) {
    return run::Checkpoints::open(run::Checkpoints(s.run).folder_of(step))
        .state.settings.at("model_name_or_path")
        .get<std::string>();
  };
  CHECK(noted(5).ends_with(" of all bytes"));
  RandomModel other;
  other.seed = 2;
  write_random_model(s.temp / "model", other);
  config.output_dir = (s.temp / "other").native();
  CHECK_THROWS_WITH_AS(fine_tune(config), doctest::Contains("key model_name_or_path: given "), ConfigError);
}

}  // namespace own_files_test
