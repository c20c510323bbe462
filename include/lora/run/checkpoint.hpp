#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lora/core/hash.hpp"
#include "lora/core/log.hpp"
#include "lora/io/atomic_folder.hpp"
#include "lora/io/file.hpp"
#include "lora/io/json_view.hpp"
#include "lora/io/read_file.hpp"
#include "lora/optim/loss_scale.hpp"
#include "lora/run/result_proof.hpp"

namespace lora::run {

/// In a checkpoint: what has been trained of a model, where that is not all of it.
constexpr std::string_view trained_file = "trained.safetensors";

/// A running mean of losses, as sum and count, so that a resumed run has the same bits.
struct LossMean {
  double sum = 0;
  Index steps = 0;

  void add(double loss) {
    sum += loss;
    ++steps;
  }
  /// NaN without steps.
  double mean() const { return sum / static_cast<double>(steps); }
};

/// What was drawn of each class in a part of a curriculum: records that were learnt from.
struct DrawnClasses {
  Index from_step = 0;  ///< steps done before it
  Index to_step = 0;    ///< and after its last so far
  std::vector<std::pair<std::string, Index>> counts{};
};

/// The state of a run. Together with the settings it determines the rest of the run: the order of the data and all
/// random numbers are functions of the seed and the number of the sample or step.
struct RunState {
  Index step = 0;          ///< steps done, including skipped ones
  Index updates = 0;       ///< steps that changed the adapter
  Index next_sample = 0;   ///< global index of the first sample not seen
  Index total_tokens = 0;  ///< tokens seen
  double last_loss = 0;
  LossMean losses{};             ///< of all steps that changed the adapter
  LossMean losses_since_line{};  ///< of those after the last line of the log
  std::optional<double> last_eval_loss{};
  std::optional<double> last_exact_match{};  ///< of generated answers
  std::optional<double> last_rouge_l{};
  std::optional<double> best_eval_loss{};  ///< of the best evaluation, by metric_for_best_model
  std::optional<double> best_metric{};     ///< that metric then
  Index best_step = 0;
  /// What early stopping compares with, of the stage that was evaluated last: its best metric and the step of that.
  std::optional<std::pair<double, Index>> to_beat{};
  Index step_to_beat() const { return to_beat ? to_beat->second : best_step; }
  Index evaluations_without_improvement = 0;  ///< in a row and in a stage, by early_stopping_threshold
  Index evaluated_stage = 0;                  ///< the one that was evaluated last
  Index stage = 0;                            ///< of the next step
  std::vector<Index> ended_stages{};          ///< steps done when a stage but the last ended before its end
  std::vector<DrawnClasses> drawn{};          ///< by parts of a curriculum
  /// Records learnt from, by the name of their file; empty for a single one.
  std::vector<std::pair<std::string, Index>> learnt_of_files{};
  std::optional<optim::LossScale> loss_scale{};  ///< of a run in float16
  Index skipped = 0;                             ///< steps whose loss or gradient was not finite
  Index overflows = 0;                           ///< and those that a smaller loss scale may have helped
  bool ended_early = false;                      ///< nothing is left to do, though the plan has more steps
  bool out_of_patience = false;                  ///< by early_stopping_patience: with a larger one the run goes on
  bool evaluation_due = false;                   ///< the run was stopped while it evaluated this step
  io::Json unlogged{};                           ///< then, this step's line of the log, unless it has been written
  io::Json settings = io::Json::object();        ///< those that must not change on resume
};

/// A verified checkpoint.
struct Checkpoint {
  io::Path folder;
  RunState state;
  std::string checksum{};  ///< of the state file, which holds those of all other files
};

inline io::Json to_json(const std::vector<DrawnClasses>& parts) {
  io::Json list = io::Json::array();
  for (const DrawnClasses& part : parts) {
    io::Json counts = io::Json::object();
    for (const auto& [label, count] : part.counts) counts[label] = count;
    list.push_back(io::json_object({{"from_step", part.from_step}, {"to_step", part.to_step}, {"counts", counts}}));
  }
  return list;
}

/// Counts by the name of a file, each with its share of all.
inline io::Json to_json(const std::vector<std::pair<std::string, Index>>& files) {
  Index sum = 0;
  for (const auto& [name, count] : files) sum += count;
  io::Json list = io::Json::array();
  for (const auto& [name, count] : files) {
    const double share = sum > 0 ? static_cast<double>(count) / static_cast<double>(sum) : 0;
    list.push_back(io::json_object({{"name", name}, {"records", count}, {"share", share}}));
  }
  return list;
}

namespace detail {

constexpr std::string_view state_file = "trainer_state.json";

inline io::Json to_json(const LossMean& losses) {
  return io::json_object({{"sum", losses.sum}, {"steps", losses.steps}});
}

/// Checkpoints of earlier versions have none.
inline LossMean parse_losses(const io::JsonView& state, std::string_view name) {
  const auto losses = state.find(name);
  if (!losses) return {};
  return {losses->at<double>("sum"), losses->at<Index>("steps")};
}

inline std::optional<optim::LossScale> parse_loss_scale(const io::JsonView& state) {
  const auto value = state.get<double>("loss_scale");
  if (!value) return std::nullopt;
  const optim::LossScale scale{*value, state.get<Index>("steps_at_loss_scale").value_or(0)};
  int exponent = 0;
  if (!(scale.value >= scale.least && scale.value <= scale.most && std::frexp(scale.value, &exponent) == 0.5))
    state.fail(concat("\"loss_scale\" is ", scale.value, "; expected a power of two from 1 to 2^126"));
  if (scale.good_steps < 0) state.fail(concat("\"steps_at_loss_scale\" is ", scale.good_steps));
  return scale;
}

inline DrawnClasses parse_drawn(const io::JsonView& json) {
  DrawnClasses drawn{json.at<Index>("from_step"), json.at<Index>("to_step")};
  const auto counts = json.find("counts");
  if (!counts || !counts->json().is_object()) json.fail("\"counts\" must be an object");
  counts->for_each_field([&](const std::string& label, const io::JsonView& count) {
    drawn.counts.emplace_back(label, count.as<Index>());
  });
  return drawn;
}

inline std::pair<std::string, Index> parse_learnt(const io::JsonView& file) {
  const auto records = file.at<Index>("records");
  if (records < 0) file.fail("\"records\" is ", records);
  return {file.at<std::string>("name"), records};
}

inline io::Json to_json(const RunState& state) {
  io::Json json = io::json_object({{"format", 2},
                                   {"step", state.step},
                                   {"updates", state.updates},
                                   {"next_sample", state.next_sample},
                                   {"total_tokens", state.total_tokens},
                                   {"last_loss", state.last_loss},
                                   {"losses", to_json(state.losses)},
                                   {"losses_since_line", to_json(state.losses_since_line)},
                                   {"last_eval_loss", nullptr},
                                   {"best_eval_loss", nullptr},
                                   {"best_metric", nullptr},
                                   {"best_step", state.best_step},
                                   {"evaluations_without_improvement", state.evaluations_without_improvement},
                                   {"evaluated_stage", state.evaluated_stage},
                                   {"stage", state.stage},
                                   {"ended_stages", state.ended_stages},
                                   {"loss_scale", nullptr},
                                   {"skipped", state.skipped},
                                   {"overflows", state.overflows},
                                   {"ended_early", state.ended_early},
                                   {"out_of_patience", state.out_of_patience},
                                   {"settings", state.settings}});
  if (state.last_eval_loss) json["last_eval_loss"] = *state.last_eval_loss;
  if (state.best_eval_loss) json["best_eval_loss"] = *state.best_eval_loss;
  if (state.best_metric) json["best_metric"] = *state.best_metric;
  if (state.to_beat) {
    json["metric_to_beat"] = state.to_beat->first;
    json["step_to_beat"] = state.to_beat->second;
  }
  if (state.last_exact_match) json["last_exact_match"] = *state.last_exact_match;
  if (state.last_rouge_l) json["last_rouge_l"] = *state.last_rouge_l;
  if (state.loss_scale) {
    json["loss_scale"] = state.loss_scale->value;
    json["steps_at_loss_scale"] = state.loss_scale->good_steps;
  }
  if (state.evaluation_due) json["evaluation_due"] = true;
  if (state.evaluation_due && !state.unlogged.is_null()) json["unlogged"] = state.unlogged;
  if (!state.drawn.empty()) json["curriculum"] = run::to_json(state.drawn);
  if (!state.learnt_of_files.empty()) json["datasets"] = run::to_json(state.learnt_of_files);
  return json;
}

/// A damaged checkpoint, as opposed to one that can't be read or has another version.
class Damaged : public FormatError {
 public:
  using FormatError::FormatError;
};

inline RunState parse_state(const io::JsonView& json) {
  RunState state;
  state.step = json.at<Index>("step");
  state.updates = json.at<Index>("updates");
  state.next_sample = json.at<Index>("next_sample");
  state.total_tokens = json.at<Index>("total_tokens");
  state.last_loss = json.get<double>("last_loss").value_or(0);
  state.losses = parse_losses(json, "losses");
  state.losses_since_line = parse_losses(json, "losses_since_line");
  state.last_eval_loss = json.get<double>("last_eval_loss");
  state.last_exact_match = json.get<double>("last_exact_match");
  state.last_rouge_l = json.get<double>("last_rouge_l");
  state.best_eval_loss = json.get<double>("best_eval_loss");
  state.best_step = json.at<Index>("best_step");
  // Checkpoints of earlier versions have none of these.
  state.best_metric = json.get<double>("best_metric");
  if (!state.best_metric) state.best_metric = state.best_eval_loss;
  if (const auto metric = json.get<double>("metric_to_beat")) state.to_beat = {*metric, json.at<Index>("step_to_beat")};
  state.evaluations_without_improvement = json.get<Index>("evaluations_without_improvement").value_or(0);
  state.stage = json.get<Index>("stage").value_or(0);
  const auto evaluated = json.get<Index>("evaluated_stage");
  state.evaluated_stage = evaluated.value_or(state.stage);
  if (!evaluated && !state.to_beat && state.best_metric) state.to_beat.emplace(*state.best_metric, state.best_step);
  state.ended_stages = json.get<std::vector<Index>>("ended_stages").value_or(std::vector<Index>());
  state.out_of_patience = json.get<bool>("out_of_patience").value_or(false);
  state.loss_scale = parse_loss_scale(json);
  state.skipped = json.get<Index>("skipped").value_or(0);
  state.overflows = json.get<Index>("overflows").value_or(0);
  state.ended_early = json.get<bool>("ended_early").value_or(false);
  state.evaluation_due = json.get<bool>("evaluation_due").value_or(false);
  if (const auto line = json.find("unlogged")) state.unlogged = line->json();
  if (const auto drawn = json.find("curriculum"))
    for (std::size_t i = 0; i < drawn->json().size(); ++i) state.drawn.push_back(parse_drawn(drawn->element(i)));
  if (const auto files = json.find("datasets"))
    for (std::size_t i = 0; i < files->json().size(); ++i)
      state.learnt_of_files.push_back(parse_learnt(files->element(i)));
  const auto settings = json.find("settings");
  if (!settings || !settings->json().is_object()) json.fail("\"settings\" must be an object");
  state.settings = settings->json();
  return state;
}

/// Reads the state file.
/// Throws   Damaged
inline io::Json read_state(const io::Path& folder) {
  const io::Path path = folder / state_file;
  if (!io::is_there(path)) fail<Damaged>(path.native(), " is missing");
  const std::string text = io::read_file(path);
  try {
    io::Json json = io::parse_json(text, path.native());
    if (json.is_object()) return json;
  } catch (const FormatError& error) {
    fail<Damaged>(std::string_view(error.what()));
  }
  fail<Damaged>(path.native(), ": expected an object");
}

/// Removes and returns the checksum in a state file's content.
/// Throws   Damaged if it doesn't match the rest
inline std::string take_checksum(io::Json& json, const std::string& where) {
  const io::Json* value = io::json_find(json, "checksum");
  std::string sum = value != nullptr && value->is_string() ? value->get<std::string>() : "";
  json.erase("checksum");
  if (sum != checksum_text(checksum(io::to_text(json))))
    fail<Damaged>(where, ": its checksum does not match its content");
  return sum;
}

/// Opens a checkpoint and verifies the checksums of all its files. If it is still `known`, which was verified before,
/// the content of the other files is not read again.
/// Throws   Damaged; another Error if it can't be read or has another version
inline Checkpoint verified(io::Path folder, const Checkpoint* known = nullptr) {
  const std::string where = (folder / state_file).native();
  io::Json json = read_state(folder);
  const io::Json* format = io::json_find(json, "format");
  if (format != nullptr && format->is_number_integer() && format->get<Index>() != 2)
    fail<FormatError>(where, ": \"format\" is ", format->get<Index>(), "; this version reads 2");
  std::string sum = take_checksum(json, where);
  const bool read_before = known != nullptr && known->folder == folder && known->checksum == sum;
  const io::JsonView view(json, where);
  const auto files = view.find("files");
  if (!files || !files->json().is_object()) view.fail("\"files\" must be an object");
  files->for_each_field([&](const std::string& name, const io::JsonView& facts) {
    const io::Path path = folder / name;
    if (!io::is_there(path)) fail<Damaged>(path.native(), " is missing");
    const auto size = facts.at<std::uint64_t>("size");
    if (const std::uint64_t found = io::FileReader(path).size(); found != size)
      fail<Damaged>(path.native(), " has ", found, " bytes; ", size, " were written");
    if (!read_before && checksum_text(io::file_sum(path).checksum) != facts.at<std::string>("checksum"))
      fail<Damaged>(path.native(), ": its checksum is not that of what was written");
  });
  RunState state = parse_state(view);
  return {std::move(folder), std::move(state), std::move(sum)};
}

/// N of a folder named exactly "checkpoint-N".
inline std::optional<Index> checkpoint_step(const io::Path& folder) { return io::number_behind("checkpoint-", folder); }

/// What in a checkpoint folder was not written by a run, or empty. A run's has an intact state file of its step and
/// only files listed in it, of any version and even if damaged. If the state file is damaged, the README.md decides, as
/// for final_model.
inline std::string stranger_in_checkpoint(const io::Path& folder) {
  if (!io::is_folder(folder)) return "it is no folder";
  if (!io::is_file(folder / state_file)) return concat("it holds no ", state_file);
  io::Json json;
  try {
    json = read_state(folder);
    take_checksum(json, (folder / state_file).native());
  } catch (const Damaged& error) {
    const bool is_a_runs = stranger_beside_result(folder, {state_file, "optimizer.safetensors", trained_file}).empty();
    return is_a_runs ? std::string() : error.what();
  }
  const io::Json* files = io::json_find(json, "files");
  const io::Json* step = io::json_find(json, "step");
  if (files == nullptr || !files->is_object() || step == nullptr || !step->is_number_integer() ||
      step->get<Index>() != checkpoint_step(folder))
    return concat("its ", state_file, " is not of this step of a run");
  for (const io::Path& entry : io::entries_of(folder)) {
    const std::string name = entry.filename().native();
    if (name != state_file && !files->contains(name)) return concat("it holds ", name, ", which no run wrote there");
  }
  return {};
}

}  // namespace detail

/// The checkpoints of a run: output_dir/checkpoints/checkpoint-N, written atomically.
class Checkpoints {
 public:
  explicit Checkpoints(const io::Path& output_dir) : folder_(output_dir / "checkpoints") {}

  static constexpr Index any_step = std::numeric_limits<Index>::max();

  const io::Path& folder() const { return folder_; }
  io::Path folder_of(Index step) const { return folder_ / concat("checkpoint-", step); }

  /// Removes what an interrupted run has left. Call with the lock held.
  void recover() const {
    io::clear_unfinished(
        folder_, io::place_among([](const std::string& name) { return detail::checkpoint_step(name).has_value(); }));
  }

  /// Steps with a folder of a checkpoint's name, ascending.
  std::vector<Index> steps() const {
    std::vector<Index> steps;
    for (const io::Path& entry : io::entries_of(folder_))
      if (const auto step = detail::checkpoint_step(entry)) steps.push_back(*step);
    std::sort(steps.begin(), steps.end());
    return steps;
  }

  /// Steps whose folder a run wrote. Others are never replaced or removed.
  std::vector<Index> own_steps() const {
    auto all = steps();
    std::erase_if(all, [&](Index step) { return !detail::stranger_in_checkpoint(folder_of(step)).empty(); });
    return all;
  }

  /// Throws   ConfigError if a folder that no run wrote has the name of a checkpoint of a step in (first, last]
  void expect_places(Index first, Index last) const {
    for (const Index step : steps()) {
      if (step <= first || step > last) continue;
      if (const auto what = detail::stranger_in_checkpoint(folder_of(step)); !what.empty())
        fail<ConfigError>("key output_dir: ", folder_of(step).native(), " is in the way: ", what,
                          "; move it elsewhere");
    }
  }

  /// Opens a checkpoint by its path. `known`: one that was verified before, which need not be read again.
  /// Throws   Error
  static Checkpoint open(io::Path folder, const Checkpoint* known = nullptr) {
    std::error_code unreadable;
    if (!std::filesystem::is_directory(folder, unreadable)) fail<IoError>("no checkpoint at ", folder.native());
    return detail::verified(std::move(folder), known);
  }

  /// The one of a step if it is intact, else `why` it is not.
  /// Throws   Error if it can't be read or has another version
  std::optional<Checkpoint> find(Index step, std::string& why) const {
    const io::Path folder = folder_of(step);
    try {
      if (io::is_there(folder)) return detail::verified(folder);
      why = concat("no checkpoint at ", folder.native());
    } catch (const detail::Damaged& error) {
      why = error.what();
    }
    return std::nullopt;
  }

  /// The newest intact one, of those up to step `last`; damaged ones are skipped, with a warning if `warns`. `known` as
  /// for open.
  /// Throws   Error for one that can't be read or has another version
  std::optional<Checkpoint> newest(bool warns = true, const Checkpoint* known = nullptr, Index last = any_step) const {
    const auto all = steps();
    for (auto step = all.rbegin(); step != all.rend(); ++step) {
      std::error_code ignored;
      if (*step > last || !std::filesystem::is_directory(folder_of(*step), ignored)) continue;
      try {
        return open(folder_of(*step), known);
      } catch (const detail::Damaged& error) {
        if (warns) log::warn("skipping ", folder_of(*step).native(), ": ", std::string_view(error.what()));
      }
    }
    return std::nullopt;
  }

  /// Writes the checkpoint of state.step; `write_files(folder)` writes everything but the state. Checkpoints of later
  /// steps, damaged ones that the run has passed over, are removed.
  template <class WriteFiles>
  void save(const RunState& state, WriteFiles&& write_files) const {
    io::write_whole_folder(folder_of(state.step), detail::stranger_in_checkpoint, [&](const io::Path& folder) {
      write_files(folder);
      io::Json json = detail::to_json(state);
      io::Json files = io::Json::object();
      for (const io::Path& entry : io::entries_of(folder)) {
        const io::FileSum sum = io::file_sum(entry);
        files[entry.filename().native()] =
            io::json_object({{"size", sum.size}, {"checksum", checksum_text(sum.checksum)}});
      }
      json["files"] = std::move(files);
      json["checksum"] = checksum_text(checksum(io::to_text(json)));
      io::write_json(folder / detail::state_file, json);
    });
    remove_past(state.step);
  }

  /// Removes those of later steps that runs wrote, the newest first.
  void remove_past(Index last) const {
    const auto own = own_steps();
    for (auto step = own.rbegin(); step != own.rend() && *step > last; ++step) {
      log::warn("removing ", folder_of(*step).native(), ", which lies past step ", last,
                " that this run has gone back to");
      remove(*step);
    }
  }

  /// Removes a checkpoint that a run wrote.
  void remove(Index step) const { io::remove_whole_folder(folder_of(step), detail::stranger_in_checkpoint); }

  /// Removes the oldest checkpoints until `limit` are left, except `keep`. Nothing is removed unless the newest is
  /// intact. Those past step `last` neither count nor go.
  void rotate(Index limit, std::optional<Index> keep, Index last = any_step) const {
    auto all = own_steps();
    std::erase_if(all, [&](Index step) { return step > last; });
    if (static_cast<Index>(all.size()) <= limit) return;
    try {
      detail::verified(folder_of(all.back()));
    } catch (const Error& error) {
      log::warn("keeping all checkpoints, since the newest does not read back: ", std::string_view(error.what()));
      return;
    }
    all.resize(all.size() - static_cast<std::size_t>(std::max<Index>(limit, 1)));
    for (const Index step : all)
      if (step != keep) remove(step);
  }

 private:
  io::Path folder_;
};

}  // namespace lora::run
