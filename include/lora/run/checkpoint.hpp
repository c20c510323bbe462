#pragma once

#include <algorithm>
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
#include "lora/run/result_proof.hpp"
#include "lora/run/run_state.hpp"

namespace lora::run {

/// In a checkpoint: what has been trained of a model, where that is not all of it.
constexpr std::string_view trained_file = "trained.safetensors";

/// A verified checkpoint.
struct Checkpoint {
  io::Path folder;
  RunState state;
  std::string checksum{};  ///< of the state file, which holds those of all other files
};

namespace detail {

constexpr std::string_view state_file = "trainer_state.json";

/// A damaged checkpoint, as opposed to one that can't be read or has another version.
class Damaged : public FormatError {
 public:
  using FormatError::FormatError;
};

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
