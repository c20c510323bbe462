#pragma once

#include "lora/core/config.hpp"
#include "lora/run/earlier_run.hpp"

namespace lora::run {

LORA_INLINE EarlierRun::EarlierRun(const settings::Config& config,
                                   const std::vector<std::pair<std::string_view, io::Path>>& inputs)
    : folder_(config.output_dir),
      resume_(config.resume_from_checkpoint),
      overwrites_(config.overwrite_output_dir),
      goes_on_here_(lies_here()) {
  const io::Path& output = folder_.path();
  std::error_code error;
  if (!resume_.empty() && resume_ != "auto" && !std::filesystem::exists(resume_, error))
    fail<IoError>("key resume_from_checkpoint: given ", resume_,
                  ", where there is nothing; allowed: ", "auto, or the path of a checkpoint");
  if (!resume_.empty() && resume_ != "auto") expect_checkpoint();
  const auto status = std::filesystem::status(output, error);
  if (!std::filesystem::exists(status)) return;
  if (!std::filesystem::is_directory(status)) fail<IoError>("output_dir ", output.native(), " is not a folder");
  if (!overwrites_ && !goes_on_here_ && !io::entries_of(output).empty()) refuse_used();
  for (const auto& [key, path] : inputs) folder_.expect_outside(key, path);
  folder_.expect_own();
}

LORA_INLINE io::Json EarlierRun::setting(std::string_view name) {
  seen_ = checkpoint(false);
  const io::Json* value = seen_ ? io::json_find(seen_->state.settings, name) : nullptr;
  return value ? *value : io::Json();
}

LORA_INLINE std::optional<Checkpoint> EarlierRun::find_checkpoint() const {
  folder_.expect_own();
  folder_.recover();
  if (!overwrites_ && !goes_on_here_ && folder_.is_a_runs()) refuse_used();  // another run was started meanwhile
  auto found = checkpoint(true);
  if (found || resume_ != "auto") return found;
  if (!overwrites_) {
    const char* left = folder_.going_back()                  ? "what a run has left that was to be cleared away"
                       : !checkpoints().own_steps().empty()  ? "checkpoints, of which none is whole"
                       : io::is_there(folder_.final_model()) ? "final_model, but no checkpoint to go on with"
                                                             : nullptr;
    if (left != nullptr)
      fail<ConfigError>("key resume_from_checkpoint: given auto, but ", folder_.path().native(), " holds ",
                        std::string_view(left), "; hint: overwrite_output_dir true starts from scratch");
  }
  log::info("no complete checkpoint in ", checkpoints().folder().native(), ": starting from scratch");
  return found;
}

LORA_INLINE void EarlierRun::take(const std::optional<Checkpoint>& resumed, Index last, bool evaluates) const {
  const Index first = resumed ? resumed->state.step : 0;
  const bool works = first < last || evaluates;
  // A damaged checkpoint that auto has passed over stays until the run has one of its own.
  const bool chosen = resume_ != "auto" || folder_.going_back();
  const auto own = checkpoints().own_steps();
  const bool goes_back = chosen && !own.empty() && own.back() > first;
  if (works || goes_back || !goes_on_here_) folder_.expect_own_final_model();
  if (first < last) checkpoints().expect_places(first, last);
  if (resumed && goes_on_here_) return folder_.go_on_from(first, works, goes_back);
  if (io::is_there(folder_.final_model())) log::info("the earlier run's final_model stays until this one is finished");
  folder_.clear();
}

LORA_INLINE void EarlierRun::expect_checkpoint() const {
  const io::Path given = resume_;
  std::error_code none;
  const auto refuse = [&](const auto&... what) {
    fail<ConfigError>("key resume_from_checkpoint: given ", resume_, ", which ", what...);
  };
  if (!std::filesystem::is_directory(given, none)) refuse("is no folder; allowed: auto, or the path of a checkpoint");
  if (io::is_there(given / detail::state_file) || detail::checkpoint_step(given)) return;
  if (const auto newest = io::newest_checkpoint(given, detail::state_file))
    refuse(io::is_there(given / "checkpoints") ? "is the folder of a run; allowed: one of its checkpoints"
                                               : "holds the checkpoints of a run; allowed: one of them",
           ", of which ", newest->native(), " is the newest, or auto, for the newest in output_dir");
  const bool adapter = io::is_there(given / "adapter_config.json");
  refuse("holds no ", detail::state_file, "; allowed: auto, or the path of a checkpoint",
         adapter ? "; a new run starts from an adapter by adapter_name_or_path" : "");
}

LORA_INLINE void EarlierRun::refuse_used() const {
  fail<ConfigError>("key output_dir: given ", folder_.path().native(),
                    ", which is not empty; allowed: an empty folder; hint: resume_from_checkpoint auto goes on, ",
                    "overwrite_output_dir true starts from scratch");
}

LORA_INLINE bool EarlierRun::lies_here() const {
  if (resume_.empty() || resume_ == "auto") return resume_ == "auto";
  std::error_code error;
  const auto folder = std::filesystem::canonical(resume_, error).parent_path();
  return !error && std::filesystem::equivalent(folder, checkpoints().folder(), error);
}

LORA_INLINE std::optional<Checkpoint> EarlierRun::checkpoint(bool warns) const {
  const Checkpoint* const known = seen_ ? &*seen_ : nullptr;
  if (resume_.empty()) return std::nullopt;
  if (resume_ != "auto") return Checkpoints::open(resume_, known);
  return checkpoints().newest(warns, known, folder_.going_back().value_or(Checkpoints::any_step));
}

}  // namespace lora::run
