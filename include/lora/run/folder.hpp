#pragma once

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lora/io/atomic_folder.hpp"
#include "lora/io/json.hpp"
#include "lora/io/json_view.hpp"
#include "lora/run/checkpoint.hpp"
#include "lora/run/metrics.hpp"
#include "lora/run/result_proof.hpp"

namespace lora::run {

/// The files that a run writes into output_dir itself. The last one identifies the folder as a run's: it is written
/// first and removed last.
constexpr std::string_view run_files[] = {
    "trainer_log.jsonl", "training.log",      "training_metrics.json", "profile.md",
    "profile.json",      "train_command.txt", "environment_info.txt",  "tensorboard/events.out.tfevents.lora",
    "going_back.json",   "run_config.json"};
/// The folders in output_dir that belong to runs.
constexpr std::string_view run_folders[] = {"final_model", "checkpoints", "tensorboard"};

namespace detail {

/// Whether a file is a run's run_config.json.
inline bool is_run_config(const io::Path& path) {
  if (!io::is_file(path)) return false;
  try {
    const io::Json json = io::read_json(path);
    if (!json.is_object()) return false;
    for (const char* key : {"model_name_or_path", "dataset", "output_dir", "lora_rank", "save_steps", "on_non_finite"})
      if (!json.contains(key)) return false;
    return true;
  } catch (const FormatError&) {
    return false;
  }
}

}  // namespace detail

/// The output folder of a run: knows which of its files runs wrote. Others are never changed.
class RunFolder {
 public:
  explicit RunFolder(io::Path output) : output_(std::move(output)), checkpoints_(output_) {}

  const io::Path& path() const { return output_; }
  const Checkpoints& checkpoints() const { return checkpoints_; }
  io::Path final_model() const { return output_ / "final_model"; }

  /// Whether a run has written here. (Most of its files can't be identified on their own.)
  bool is_a_runs() const {
    return detail::is_run_config(output_ / "run_config.json") || !checkpoints_.own_steps().empty();
  }

  /// Throws   ConfigError if a run would overwrite something that no run wrote, or write through a link
  void expect_own() const {
    for (const std::string_view name : run_folders)
      if (const io::Path path = output_ / name; io::is_there(path) && !io::is_folder(path))
        refuse(path, "which is no folder");
    bool known = false;
    for (const std::string_view name : run_files) {
      const io::Path path = output_ / name;
      if (!io::is_there(path)) continue;
      if (!io::is_file(path)) refuse(path, "which is no regular file");
      if (!known && !is_a_runs()) refuse(path, "which no run wrote, for there is no run's run_config.json");
      known = true;
    }
  }

  /// Throws   ConfigError if there is a final_model that no run wrote
  void expect_own_final_model() const {
    if (!io::is_there(final_model())) return;
    if (const auto what = stranger_in_result(final_model()); !what.empty())
      refuse(final_model(), concat("which is not a run's: ", what));
  }

  /// Whether the results of a finished run are there: final_model, and training_metrics.json, which is written after it
  /// and goes before anything that it is of changes.
  bool has_result() const { return io::is_there(final_model()) && io::is_there(output_ / metrics_file); }

  /// Throws   ConfigError if a key's input is where runs write, or links there
  void expect_outside(std::string_view key, const io::Path& input) const {
    std::vector<std::string_view> places(std::begin(run_files), std::end(run_files));
    places.insert(places.end(), std::begin(run_folders), std::end(run_folders));
    for (const std::string_view place : places)
      if (const auto path = io::input_within(input, output_ / place))
        fail<ConfigError>("key ", key, ": given ", path->native(), ", which lies in ", (output_ / place).native(),
                          ", where the run of output_dir writes; allowed: a place outside of it");
  }

  /// Removes what an interrupted run has left. Call with the lock held.
  void recover() const {
    checkpoints_.recover();
    io::clear_unfinished(output_, io::place_among([](const std::string& name) {
                           return name == "final_model" ||
                                  std::find(std::begin(run_files), std::end(run_files), name) != std::end(run_files);
                         }));
  }

  /// The step that a run has begun to go back to, -1 for a new start, while something of later steps may be left.
  /// Throws   FormatError, IoError if the note of it can't be read
  std::optional<Index> going_back() const {
    const io::Path note = output_ / going_back_file;
    if (!io::is_there(note)) return std::nullopt;
    return io::JsonFile(note)->at<Index>("to_step");
  }

  /// Readies the folder for a run that goes on from `step`: removes the results of a finished one, unless they are of
  /// that step and nothing is to be done, and, where the run `goes_back`, what later steps have left but for the logs,
  /// which are cut off once nothing can go on from there. From the first operation on a process that is killed is gone
  /// on from `step`, before it as if nothing had happened. Call with the lock held, after expect_own.
  void go_on_from(Index step, bool works, bool goes_back) const {
    if (goes_back) note_going_back(step);
    if (works || goes_back || steps_of_metrics(output_, true) != step) io::remove_file(output_ / metrics_file);
    if (goes_back) {
      for (const char* name : {"profile.md", "profile.json"}) io::remove_file(output_ / name);
      io::sync_folder(output_);
      checkpoints_.remove_past(step);
    }
    io::remove_file(output_ / going_back_file);
  }

  /// Removes what a run has written, except final_model, which stays until it is replaced. Call with the lock held,
  /// after expect_own.
  void clear() const {
    if (const auto own = checkpoints_.own_steps(); !own.empty()) {
      note_going_back(-1);
      for (const Index step : own) checkpoints_.remove(step);
    }
    for (const std::string_view name : run_files) io::remove_file(output_ / name);
    for (const char* name : {"tensorboard", "checkpoints"})
      if (io::is_there(output_ / name) && io::entries_of(output_ / name).empty()) io::remove_file(output_ / name);
    io::sync_folder(output_);
  }

 private:
  static constexpr std::string_view going_back_file = "going_back.json";

  void note_going_back(Index step) const { io::write_json(output_ / going_back_file, {{"to_step", step}}); }

  [[noreturn]] void refuse(const io::Path& path, std::string_view what) const {
    fail<ConfigError>("key output_dir: given ", output_.native(), ", where ", path.native(), " is in the way, ", what,
                      "; allowed: another folder, or this one without it");
  }

  io::Path output_;
  Checkpoints checkpoints_;
};

}  // namespace lora::run
