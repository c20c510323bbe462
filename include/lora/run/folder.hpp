#pragma once

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lora/io/files/atomic_folder.hpp"
#include "lora/io/formats/json.hpp"
#include "lora/io/formats/json_view.hpp"
#include "lora/run/checkpoint.hpp"
#include "lora/run/metrics.hpp"
#include "lora/run/result_proof.hpp"

namespace lora::run {

/// The output folder of a run: knows which of its files runs wrote. Others are never changed.
class RunFolder {
 public:
  explicit RunFolder(io::Path output) : output_(std::move(output)), checkpoints_(output_) {}

  const io::Path& path() const { return output_; }
  const Checkpoints& checkpoints() const { return checkpoints_; }
  io::Path final_model() const { return output_ / "final_model"; }

  /// Whether a run has written here. (Most of its files can't be identified on their own.)
  bool is_a_runs() const;

  /// Throws   ConfigError if a run would overwrite something that no run wrote, or write through a link
  void expect_own() const;

  /// Throws   ConfigError if there is a final_model that no run wrote
  void expect_own_final_model() const;

  /// Whether the results of a finished run are there: final_model, and training_metrics.json, which is written after it
  /// and goes before anything that it is of changes.
  bool has_result() const { return io::is_there(final_model()) && io::is_there(output_ / metrics_file); }

  /// Throws   ConfigError if a key's input is where runs write, or links there
  void expect_outside(std::string_view key, const io::Path& input) const;

  /// Removes what an interrupted run has left. Call with the lock held.
  void recover() const;

  /// The step that a run has begun to go back to, -1 for a new start, while something of later steps may be left.
  /// Throws   FormatError, IoError if the note of it can't be read
  std::optional<Index> going_back() const;

  /// Prepares the folder for a run that resumes from `step`. `works`: it has steps left to do; `goes_back`: there are
  /// newer checkpoints. Removes the results of a finished run, unless they are of this step and no steps are left, and
  /// when it goes back, everything that newer steps have left but the logs, which each log's sink truncates later.
  /// Killed before the note of going back is written, the run is as before; after that, it resumes from `step`. Call
  /// with the lock held, after expect_own.
  void go_on_from(Index step, bool works, bool goes_back) const;

  /// Removes what a run has written, except final_model, which stays until it is replaced. Call with the lock held,
  /// after expect_own.
  void clear() const;

 private:
  static constexpr std::string_view going_back_file = "going_back.json";

  /// Logs of ranks that are there, of any number of ranks.
  std::vector<io::Path> rank_logs() const;

  void note_going_back(Index step) const { io::write_json(output_ / going_back_file, {{"to_step", step}}); }

  [[noreturn]] void refuse(const io::Path& path, std::string_view what) const;

  io::Path output_;
  Checkpoints checkpoints_;
};

}  // namespace lora::run

#ifndef LORA_COMPILED
#  include "lora/run/folder.ipp"
#endif
