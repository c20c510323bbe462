#pragma once

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "lora/core/log.hpp"
#include "lora/io/file.hpp"
#include "lora/io/json.hpp"
#include "lora/io/mapped_file.hpp"
#include "lora/train/checksum.hpp"
#include "lora/train/whole_folder.hpp"

namespace lora::train {

/// The mean loss of some steps, as their sum and number: it goes on over a resume with the same bits.
struct LossMean {
  double sum = 0;
  Index steps = 0;

  void add(double loss) {
    sum += loss;
    ++steps;
  }
  /// NaN of no steps.
  double mean() const { return sum / static_cast<double>(steps); }
};

/// Where a run stands. Everything else about its future follows from these and its settings: the order of the data and
/// every random number are functions of the seed and the sample's or step's number.
struct RunState {
  Index step = 0;          ///< optimizer steps done, those without labels included
  Index updates = 0;       ///< those that changed the adapter
  Index next_sample = 0;   ///< the global index of the first sample not seen
  Index total_tokens = 0;  ///< tokens seen
  double last_loss = 0;
  LossMean losses{};             ///< of all steps that changed the adapter
  LossMean losses_since_line{};  ///< of those after the last line of the log
  std::optional<double> last_eval_loss{};
  std::optional<double> best_eval_loss{};
  Index best_step = 0;
  io::Json settings = io::Json::object();  ///< what must not change when the run goes on
};

/// A checkpoint that was found whole.
struct Checkpoint {
  io::Path folder;
  RunState state;
  std::string checksum{};  ///< of the state file, in which those of all other files stand
};

namespace detail {

constexpr std::string_view state_file = "trainer_state.json";

inline io::Json to_json(const LossMean& losses) {
  return io::json_object({{"sum", losses.sum}, {"steps", losses.steps}});
}

/// Checkpoints of earlier versions have none.
inline LossMean parse_losses(const io::Json& state, const char* name, const std::string& where) {
  const io::Json* losses = io::json_find(state, name);
  if (losses == nullptr) return {};
  return {io::json_at<double>(*losses, "sum", where), io::json_at<Index>(*losses, "steps", where)};
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
                                   {"best_step", state.best_step},
                                   {"settings", state.settings}});
  if (state.last_eval_loss) json["last_eval_loss"] = *state.last_eval_loss;
  if (state.best_eval_loss) json["best_eval_loss"] = *state.best_eval_loss;
  return json;
}

inline RunState parse_state(const io::Json& json, const std::string& where) {
  if (const auto format = io::json_at<Index>(json, "format", where); format != 2)
    fail<FormatError>(where, ": \"format\" is ", format, "; this version reads 2");
  RunState state;
  state.step = io::json_at<Index>(json, "step", where);
  state.updates = io::json_at<Index>(json, "updates", where);
  state.next_sample = io::json_at<Index>(json, "next_sample", where);
  state.total_tokens = io::json_at<Index>(json, "total_tokens", where);
  state.last_loss = io::json_get<double>(json, "last_loss", where).value_or(0);
  state.losses = parse_losses(json, "losses", where);
  state.losses_since_line = parse_losses(json, "losses_since_line", where);
  state.last_eval_loss = io::json_get<double>(json, "last_eval_loss", where);
  state.best_eval_loss = io::json_get<double>(json, "best_eval_loss", where);
  state.best_step = io::json_at<Index>(json, "best_step", where);
  const io::Json* settings = io::json_find(json, "settings");
  if (settings == nullptr || !settings->is_object()) fail<FormatError>(where, ": \"settings\" must be an object");
  state.settings = *settings;
  return state;
}

/// A checkpoint folder, once every file in it has been found as it was written. If it still is the one `known`, which
/// was found so before, the content of the other files is not read again.
/// Throws   Error that says what is wrong
inline Checkpoint verified(io::Path folder, const Checkpoint* known = nullptr) {
  const std::string where = (folder / state_file).native();
  io::Json json = io::read_json(folder / state_file);
  if (!json.is_object()) fail<FormatError>(where, ": expected an object");
  auto sum = io::json_at<std::string>(json, "checksum", where);
  json.erase("checksum");
  if (sum != checksum_text(checksum(io::to_text(json))))
    fail<FormatError>(where, ": its checksum does not match its content");
  const bool read_before = known != nullptr && known->folder == folder && known->checksum == sum;
  const io::Json* files = io::json_find(json, "files");
  if (files == nullptr || !files->is_object()) fail<FormatError>(where, ": \"files\" must be an object");
  for (const auto& [name, facts] : io::json_fields(*files)) {
    const io::Path path = folder / name;
    if (!is_there(path)) fail<FormatError>(path.native(), " is missing");
    const io::MappedFile file(path);
    const auto size = io::json_at<std::uint64_t>(facts, "size", where);
    if (file.bytes().size() != size)
      fail<FormatError>(path.native(), " has ", file.bytes().size(), " bytes; ", size, " were written");
    if (!read_before && checksum_text(checksum(file.bytes())) != io::json_at<std::string>(facts, "checksum", where))
      fail<FormatError>(path.native(), ": its checksum is not that of what was written");
  }
  RunState state = parse_state(json, where);
  return {std::move(folder), std::move(state), std::move(sum)};
}

/// N of a folder "checkpoint-N".
inline std::optional<Index> checkpoint_step(const io::Path& folder) {
  constexpr std::string_view prefix = "checkpoint-";
  const std::string name = folder.filename().native();
  if (!name.starts_with(prefix)) return std::nullopt;
  Index step = 0;
  const auto [end, error] = std::from_chars(name.data() + prefix.size(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size() || step < 0) return std::nullopt;
  return step;
}

}  // namespace detail

/// The checkpoints of a run: output_dir/checkpoints/checkpoint-N, each whole or not there.
class Checkpoints {
 public:
  explicit Checkpoints(const io::Path& output_dir) : folder_(output_dir / "checkpoints") {}

  const io::Path& folder() const { return folder_; }
  io::Path folder_of(Index step) const { return folder_ / concat("checkpoint-", step); }

  /// Clears what an interrupted run has left. To be called under the run's lock.
  void recover() const { clear_unfinished_folders(folder_); }

  /// Steps with a checkpoint folder, whole or not, ascending.
  std::vector<Index> steps() const {
    std::vector<Index> steps;
    for (const io::Path& entry : detail::entries_of(folder_))
      if (const auto step = detail::checkpoint_step(entry)) steps.push_back(*step);
    std::sort(steps.begin(), steps.end());
    return steps;
  }

  /// A checkpoint by its path. `known`: one that was found whole before, which need not be read again.
  /// Throws   Error that says what is wrong with it
  static Checkpoint open(io::Path folder, const Checkpoint* known = nullptr) {
    std::error_code unreadable;
    if (!std::filesystem::is_directory(folder, unreadable)) fail<IoError>("no checkpoint at ", folder.native());
    return detail::verified(std::move(folder), known);
  }

  /// The newest that is whole; those that are not are skipped, with a warning if `warns`. `known` as for open.
  std::optional<Checkpoint> newest(bool warns = true, const Checkpoint* known = nullptr) const {
    const auto all = steps();
    for (auto step = all.rbegin(); step != all.rend(); ++step) {
      try {
        return open(folder_of(*step), known);
      } catch (const Error& error) {
        if (warns) log::warn("skipping ", folder_of(*step).native(), ": ", std::string_view(error.what()));
      }
    }
    return std::nullopt;
  }

  /// Writes the checkpoint of state.step: `write_files(folder)` puts everything but the state there. Checkpoints of
  /// later steps belong to a past that this run has left, and are removed.
  template <class WriteFiles>
  void save(const RunState& state, WriteFiles&& write_files) const {
    write_whole_folder(folder_of(state.step), [&](const io::Path& folder) {
      write_files(folder);
      io::Json json = detail::to_json(state);
      io::Json files = io::Json::object();
      for (const io::Path& entry : detail::entries_of(folder)) {
        const io::MappedFile file(entry);
        files[entry.filename().native()] =
            io::json_object({{"size", file.bytes().size()}, {"checksum", checksum_text(checksum(file.bytes()))}});
      }
      json["files"] = std::move(files);
      json["checksum"] = checksum_text(checksum(io::to_text(json)));
      io::write_json(folder / detail::state_file, json);
    });
    for (const Index step : steps()) {
      if (step <= state.step) continue;
      log::warn("removing ", folder_of(step).native(), ", which lies past step ", state.step,
                " that this run has gone back to");
      remove_whole_folder(folder_of(step));
    }
  }

  /// Removes the oldest checkpoints until `limit` are left. `keep`: one that stays in any case. Nothing is removed
  /// unless the newest reads back as it was written.
  void rotate(Index limit, std::optional<Index> keep) const {
    auto all = steps();
    if (static_cast<Index>(all.size()) <= limit) return;
    try {
      detail::verified(folder_of(all.back()));
    } catch (const Error& error) {
      log::warn("keeping all checkpoints, since the newest is damaged: ", std::string_view(error.what()));
      return;
    }
    all.resize(all.size() - static_cast<std::size_t>(std::max<Index>(limit, 1)));
    for (const Index step : all)
      if (step != keep) remove_whole_folder(folder_of(step));
  }

 private:
  io::Path folder_;
};

}  // namespace lora::train
