// Going back to an earlier checkpoint: one branch of the run or the other, never something of both.

#include <doctest/doctest.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "support/effort.hpp"
#include "support/file_faults.hpp"
#include "support/quiet.hpp"
#include "support/workshop.hpp"

namespace went_back_test {

using namespace lora;
using namespace lora::test;

namespace {

/// All that a run leaves that must be of one branch.
std::map<std::string, std::string> branch_of(const io::Path& run) {
  std::map<std::string, std::string> files;
  for (const io::Path& file : io::entries_of(run / "final_model")) files[file.filename()] = io::read_file(file);
  files["log"] = numbers_of(run);
  for (const std::string& line : events_of(run)) files["events"] += line + "\n";
  io::Json metrics = io::read_json(run / "training_metrics.json");
  for (const char* field : {"tokens_per_second", "peak_memory_gib", "seconds", "resumed_from_step"})
    metrics.erase(field);
  files["metrics"] = io::to_text(metrics);
  io::Json settings = io::read_json(run / "run_config.json");
  settings.erase("resume_from_checkpoint");
  files["settings"] = io::to_text(settings);
  for (const char* name : {"profile.md", "profile.json", "going_back.json"})
    files[name] = io::is_there(run / name) ? "is there" : "is not there";
  return files;
}

/// A finished run of four steps, and one that goes back to its second with other settings.
struct Branches {
  Workshop shop;
  io::Path outer = shop.temp / "outer", run = outer / "run", copy = shop.temp / "copy";
  Config first = shop.config("outer/run"), second, on;

  explicit Branches(bool full) {
    first.max_steps = 4;
    first.save_steps = 1;
    first.eval_steps = 1;
    first.logging_steps = 1;
    first.warmup_steps = 0;
    first.profile = true;
    if (full) {
      first.finetuning_type = "full";
      first.lora_rank.reset();
      first.lora_dropout = 0;
    }
    second = first;
    second.learning_rate = 0.5;
    second.profile = false;
    second.save_total_limit = 2;
    second.load_best_model_at_end = true;
    second.resume_from_checkpoint = run::Checkpoints(run).folder_of(2).native();
    on = second;
    on.resume_from_checkpoint = "auto";
    fine_tune(first);
    std::filesystem::copy(run, copy, std::filesystem::copy_options::recursive);
  }

  /// The folder as the first run left it.
  void prepare() const {
    std::filesystem::remove_all(run);
    std::filesystem::copy(copy, run, std::filesystem::copy_options::recursive);
  }
};

}  // namespace

TEST_CASE("went back: whatever ends a run that goes back, going on ends with one branch, whole") {
  const Quiet quiet;
  bool full = false;
  SUBCASE("an adapter") {}
  SUBCASE("a whole model") { full = true; }
  const Branches s(full);
  const auto left = branch_of(s.run);
  fine_tune(s.second);
  const auto right = branch_of(s.run);
  const auto files = lasting_files(s.run);
  REQUIRE(left.at("log") != right.at("log"));
  REQUIRE(run::Checkpoints(s.run).newest()->state.best_step < 4);
  for (const Fault fault : {Fault::dies, Fault::loses_unsynced, Fault::loses_data, Fault::disk_full}) {
    // The library sees no loss of power, only what it left, which tests/run sweeps.
    const bool sampled = full ? fault == Fault::disk_full : fault == Fault::dies;
    if (!sampled && !effort(true, false, "went back: all but an adapter's death and a whole model's full disk"))
      continue;
    CAPTURE(static_cast<int>(fault));
    const bool all = fault == Fault::dies && !full;  // the operations up to the first step are swept in tests/run, too
    const Index stride = effort<Index>(all ? 3 : 29, 211, "went back: most file operations at which it ends");
    bool gone_back = false;
    const auto check = [&](Index at, bool) {
      CAPTURE(at);
      fine_tune(s.on);
      const auto found = branch_of(s.run);
      if (found == left) {
        CHECK_FALSE(gone_back);
        return;
      }
      gone_back = true;
      expect_same(found, right);
      expect_same(lasting_files(s.run), files);
    };
    sweep_faults(
        s.outer, fault, [&](Index) { s.prepare(); }, [&] { fine_tune(s.second); }, check, stride);
    CHECK(gone_back);
  }
}

TEST_CASE("went back: the checkpoint that a run goes back to outlives a limit of checkpoints, and the later ones go") {
  const Quiet quiet;
  const Branches s(false);
  Config config = s.second;
  config.save_total_limit = 1;
  config.load_best_model_at_end = false;
  config.save_steps = 3;
  RunOptions options;
  std::vector<Index> steps;
  options.on_step = [&](const StepMetrics& metrics) {
    if (metrics.step == 3) steps = run::Checkpoints(s.run).steps();
  };
  fine_tune(config, options);
  CHECK(steps == std::vector<Index>{2});
}

TEST_CASE("went back: where no step is left to do, the result is that step's, and the run goes on from there") {
  const Quiet quiet;
  const Branches s(false);
  const auto whole = branch_of(s.run);
  Config config = s.first;
  config.resume_from_checkpoint = s.second.resume_from_checkpoint;
  config.max_steps = 2;
  CHECK(fine_tune(config).metrics.steps == 2);
  CHECK(io::read_json(s.run / "training_metrics.json").at("steps") == 2);
  CHECK(adapter_values(s.run / "final_model") == adapter_values(run::Checkpoints(s.run).folder_of(2)));
  CHECK(run::Checkpoints(s.run).steps() == std::vector<Index>{1, 2});
  config = s.first;
  config.resume_from_checkpoint = "auto";
  CHECK(fine_tune(config).metrics.resumed_from_step == 2);
  expect_same(branch_of(s.run), whole);
}

TEST_CASE("went back: a finished run that is asked to go on with other settings keeps what says how it was made") {
  const Quiet quiet;
  const Branches s(false);
  const auto left = branch_of(s.run);
  Config config = s.on;
  config.save_total_limit.reset();
  fine_tune(config);
  CHECK(branch_of(s.run) == left);
}

TEST_CASE("went back: the result of an earlier run is not taken for that of one that was stopped") {
  const Quiet quiet;
  const Branches s(false);
  const auto old = adapter_values(s.run / "final_model");
  Config config = s.first;
  config.overwrite_output_dir = true;
  config.learning_rate = 0.02;
  std::atomic<int> stop{0};
  RunOptions options;
  options.stop = &stop;
  options.on_step = [&](const StepMetrics& metrics) { stop = metrics.step == 3 ? 15 : 0; };
  CHECK(fine_tune(config, options).metrics.steps == 3);
  CHECK_FALSE(io::read_json(s.run / "training_metrics.json").at("finished").get<bool>());
  CHECK(adapter_values(s.run / "final_model") == old);
  config.overwrite_output_dir = false;
  config.resume_from_checkpoint = "auto";
  config.max_steps = 3;
  fine_tune(config);
  CHECK(adapter_values(s.run / "final_model") == adapter_values(run::Checkpoints(s.run).folder_of(3)));
  CHECK(io::read_json(s.run / "training_metrics.json").at("finished").get<bool>());
}

}  // namespace went_back_test
