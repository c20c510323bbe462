#pragma once

#include "lora/core/config.hpp"
#include "lora/run/folder.hpp"

namespace lora::run {

/// The files that a run writes into output_dir itself. The last one identifies the folder as a run's: it is written
/// first and removed last.
constexpr std::string_view run_files[] = {"trainer_log.jsonl",
                                          "training.log",
                                          "training_metrics.json",
                                          "profile.md",
                                          "profile.json",
                                          "train_command.txt",
                                          "environment_info.txt",
                                          "tensorboard/events.out.tfevents.lora",
                                          "going_back.json",
                                          "report.html",
                                          "loss.svg",
                                          "run_config.json"};

/// The folders in output_dir that belong to runs.
constexpr std::string_view run_folders[] = {"final_model", "checkpoints", "tensorboard", "logs"};

}  // namespace lora::run

namespace lora::run::detail {

/// Whether a file is a run's run_config.json.
LORA_INLINE bool is_run_config(const io::Path& path) {
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

}  // namespace lora::run::detail

namespace lora::run {

LORA_INLINE bool RunFolder::is_a_runs() const {
  return detail::is_run_config(output_ / "run_config.json") || !checkpoints_.own_steps().empty();
}

LORA_INLINE void RunFolder::expect_own() const {
  for (const std::string_view name : run_folders)
    if (const io::Path path = output_ / name; io::is_there(path) && !io::is_folder(path))
      refuse(path, "which is no folder");
  bool known = false;
  std::vector<io::Path> paths = rank_logs();
  for (const std::string_view name : run_files)
    if (io::is_there(output_ / name)) paths.push_back(output_ / name);
  for (const io::Path& path : paths) {
    if (!io::is_file(path)) refuse(path, "which is no regular file");
    if (!known && !is_a_runs()) refuse(path, "which no run wrote, for there is no run's run_config.json");
    known = true;
  }
}

LORA_INLINE void RunFolder::expect_own_final_model() const {
  if (!io::is_there(final_model())) return;
  if (const auto what = stranger_in_result(final_model()); !what.empty())
    refuse(final_model(), concat("which is not a run's: ", what));
}

LORA_INLINE void RunFolder::expect_outside(std::string_view key, const io::Path& input) const {
  std::vector<std::string_view> places(std::begin(run_files), std::end(run_files));
  places.insert(places.end(), std::begin(run_folders), std::end(run_folders));
  for (const std::string_view place : places)
    if (const auto path = io::input_within(input, output_ / place))
      fail<ConfigError>("key ", key, ": given ", path->native(), ", which lies in ", (output_ / place).native(),
                        ", where the run of output_dir writes; allowed: a place outside of it");
}

LORA_INLINE void RunFolder::recover() const {
  checkpoints_.recover();
  io::clear_unfinished(output_, io::place_among([](const std::string& name) {
                         return name == "final_model" ||
                                std::find(std::begin(run_files), std::end(run_files), name) != std::end(run_files);
                       }));
}

LORA_INLINE std::optional<Index> RunFolder::going_back() const {
  const io::Path note = output_ / going_back_file;
  if (!io::is_there(note)) return std::nullopt;
  return io::JsonFile(note)->at<Index>("to_step");
}

LORA_INLINE void RunFolder::go_on_from(Index step, bool works, bool goes_back) const {
  if (goes_back) note_going_back(step);
  if (works || goes_back || steps_of_metrics(output_, true) != step) io::remove_file(output_ / metrics_file);
  if (goes_back) {
    for (const char* name : {"profile.md", "profile.json", "report.html", "loss.svg"}) io::remove_file(output_ / name);
    io::sync_folder(output_);
    checkpoints_.remove_past(step);
  }
  io::remove_file(output_ / going_back_file);
}

LORA_INLINE void RunFolder::clear() const {
  if (const auto own = checkpoints_.own_steps(); !own.empty()) {
    note_going_back(-1);
    for (const Index step : own) checkpoints_.remove(step);
  }
  for (const io::Path& log : rank_logs()) io::remove_file(log);
  for (const std::string_view name : run_files) io::remove_file(output_ / name);
  for (const char* name : {"tensorboard", "checkpoints", "logs"})
    if (io::is_there(output_ / name) && io::entries_of(output_ / name).empty()) io::remove_file(output_ / name);
  io::sync_folder(output_);
}

LORA_INLINE std::vector<io::Path> RunFolder::rank_logs() const {
  std::vector<io::Path> logs;
  const io::Path folder = output_ / "logs";
  if (!io::is_folder(folder)) return logs;
  for (const io::Path& path : io::entries_of(folder)) {
    const std::string name = path.filename().native();
    constexpr std::string_view begin = "rank-", end = ".log";
    if (name.size() <= begin.size() + end.size() || !name.starts_with(begin) || !name.ends_with(end)) continue;
    const std::string number = name.substr(begin.size(), name.size() - begin.size() - end.size());
    if (std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; })) logs.push_back(path);
  }
  return logs;
}

LORA_INLINE void RunFolder::refuse(const io::Path& path, std::string_view what) const {
  fail<ConfigError>("key output_dir: given ", output_.native(), ", where ", path.native(), " is in the way, ", what,
                    "; hint: give another folder, or move that away");
}

}  // namespace lora::run
