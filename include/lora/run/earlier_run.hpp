#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lora/core/log.hpp"
#include "lora/io/files/path.hpp"
#include "lora/run/checkpoint.hpp"
#include "lora/run/folder.hpp"
#include "lora/settings/config.hpp"

namespace lora::run {

/// What an earlier run has left in output_dir, and the checkpoint to resume from.
class EarlierRun {
 public:
  /// Throws   IoError if output_dir is not a folder; ConfigError if this run must not change its files, or if an input
  ///          is among the files that it would change
  explicit EarlierRun(const settings::Config& config,
                      const std::vector<std::pair<std::string_view, io::Path>>& inputs = {});

  const RunFolder& folder() const { return folder_; }
  /// Whether this run resumes from a checkpoint in output_dir, so that the files there are its own.
  bool goes_on_here() const { return goes_on_here_; }

  /// A setting's value in the checkpoint to resume from, or null.
  /// Throws   Error if that checkpoint can't be read, or was named and is damaged
  io::Json setting(std::string_view name);

  /// The checkpoint to resume from, after removing unfinished files. Call with the lock held.
  /// Throws   Error if it can't be read, or was named and is damaged; ConfigError if starting from scratch would remove
  ///          an earlier run's results without overwrite_output_dir
  std::optional<Checkpoint> find_checkpoint() const;

  /// Prepares the folder for this run, which resumes from `resumed` and ends with step `last`: removes an earlier run's
  /// files unless this run continues it, else those of later steps. `evaluates`: an evaluation is to be made before any
  /// step. Call with the lock held.
  /// Throws   ConfigError if something that no run wrote is in the way, before anything is removed
  void take(const std::optional<Checkpoint>& resumed, Index last, bool evaluates = false) const;

 private:
  const Checkpoints& checkpoints() const { return folder_.checkpoints(); }

  /// Throws   ConfigError for what is no checkpoint, saying what it is
  void expect_checkpoint() const;

  [[noreturn]] void refuse_used() const;

  bool lies_here() const;

  std::optional<Checkpoint> checkpoint(bool warns) const;

  RunFolder folder_;
  std::string resume_;
  bool overwrites_;
  bool goes_on_here_;
  std::optional<Checkpoint> seen_;  // by setting(), which may be called before the lock is held
};

}  // namespace lora::run

#ifndef LORA_COMPILED
#  include "lora/run/earlier_run.ipp"
#endif
