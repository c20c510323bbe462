#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "lora/core/log.hpp"
#include "lora/train/checkpoint.hpp"
#include "lora/train/config.hpp"
#include "lora/train/whole_folder.hpp"

namespace lora::train {

/// What an earlier run has left in output_dir, and the checkpoint that this one goes on with.
class EarlierRun {
 public:
  /// Throws   IoError if output_dir is no folder, ConfigError if its files are not this run's to change
  explicit EarlierRun(const Config& config)
      : output_(config.output_dir), resume_(config.resume_from_checkpoint), checkpoints_(output_) {
    std::error_code error;
    if (!resume_.empty() && resume_ != "auto" && !std::filesystem::exists(resume_, error))
      fail<IoError>("key resume_from_checkpoint: given ", resume_,
                    ", where there is nothing; allowed: ", "auto, or the path of a checkpoint");
    const auto status = std::filesystem::status(output_, error);
    if (!std::filesystem::exists(status)) return;
    if (!std::filesystem::is_directory(status)) fail<IoError>("output_dir ", output_.native(), " is not a folder");
    if (config.overwrite_output_dir || goes_on_here()) return;
    if (!detail::entries_of(output_).empty())
      fail<ConfigError>("key output_dir: given ", output_.native(),
                        ", which is not empty; allowed: an empty folder, or ",
                        "resume_from_checkpoint auto to go on, or overwrite_output_dir true to start anew");
  }

  /// What a setting is in the checkpoint to go on with; null if there is none, or it has no such setting.
  /// Throws   Error if the checkpoint that resume_from_checkpoint names is damaged
  io::Json setting(std::string_view name) {
    seen_ = checkpoint(false);
    const io::Json* value = seen_ ? io::json_find(seen_->state.settings, name) : nullptr;
    return value ? *value : io::Json();
  }

  /// The checkpoint to go on with, once what was left unfinished has gone. To be called under the run's lock.
  /// Throws   Error if the one that resume_from_checkpoint names is damaged
  std::optional<Checkpoint> find_checkpoint() const {
    checkpoints_.recover();
    clear_unfinished_folders(output_);
    auto found = checkpoint(true);
    if (!found && resume_ == "auto")
      log::info("no complete checkpoint in ", checkpoints_.folder().native(), ": starting anew");
    return found;
  }

  /// Removes all that runs write; files that are no run's are left alone. To be called under the run's lock.
  void clear() const {
    for (const char* name :
         {"final_model", "checkpoints", "trainer_log.jsonl", "training.log", "training_metrics.json",
          "train_command.txt", "environment_info.txt", "run_config.json", "profile.md", "profile.json", "tensorboard"})
      io::remove_all(output_ / name);
  }

 private:
  /// Whether this run goes on with one of output_dir: another folder's checkpoint gives no right to its files.
  bool goes_on_here() const {
    if (resume_.empty() || resume_ == "auto") return resume_ == "auto";
    std::error_code error;
    const auto folder = std::filesystem::canonical(resume_, error).parent_path();
    return !error && std::filesystem::equivalent(folder, checkpoints_.folder(), error);
  }

  std::optional<Checkpoint> checkpoint(bool warns) const {
    const Checkpoint* const known = seen_ ? &*seen_ : nullptr;
    if (resume_.empty()) return std::nullopt;
    if (resume_ != "auto") return Checkpoints::open(resume_, known);
    return checkpoints_.newest(warns, known);
  }

  io::Path output_;
  std::string resume_;
  Checkpoints checkpoints_;
  std::optional<Checkpoint> seen_;  // by setting(), which may ask before the run holds the lock
};

}  // namespace lora::train
