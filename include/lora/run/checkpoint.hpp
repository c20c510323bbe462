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
#include "lora/io/files/atomic_folder.hpp"
#include "lora/io/files/file.hpp"
#include "lora/io/files/read_file.hpp"
#include "lora/io/formats/json_view.hpp"
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

/// N of a folder named exactly "checkpoint-N".
inline std::optional<Index> checkpoint_step(const io::Path& folder) { return io::number_behind("checkpoint-", folder); }

/// What in a checkpoint folder was not written by a run, or empty. A run's has an intact state file of its step and
/// only files listed in it, of any version and even if damaged. If the state file is damaged, the README.md decides, as
/// for final_model.
std::string stranger_in_checkpoint(const io::Path& folder);

}  // namespace detail

/// The checkpoints of a run: output_dir/checkpoints/checkpoint-N, written atomically.
class Checkpoints {
 public:
  explicit Checkpoints(const io::Path& output_dir) : folder_(output_dir / "checkpoints") {}

  static constexpr Index any_step = std::numeric_limits<Index>::max();

  const io::Path& folder() const { return folder_; }
  io::Path folder_of(Index step) const { return folder_ / concat("checkpoint-", step); }

  /// Removes what an interrupted run has left. Call with the lock held.
  void recover() const;

  /// Steps with a folder of a checkpoint's name, ascending.
  std::vector<Index> steps() const;

  /// Steps whose folder a run wrote. Others are never replaced or removed.
  std::vector<Index> own_steps() const;

  /// Throws   ConfigError if a folder that no run wrote has the name of a checkpoint of a step in (first, last]
  void expect_places(Index first, Index last) const;

  /// Opens a checkpoint by its path. `known`: one that was verified before, which need not be read again.
  /// Throws   Error
  static Checkpoint open(io::Path folder, const Checkpoint* known = nullptr);

  /// The one of a step if it is intact, else `why` it is not.
  /// Throws   Error if it can't be read or has another version
  std::optional<Checkpoint> find(Index step, std::string& why) const;

  /// The newest intact one, of those up to step `last`; damaged ones are skipped, with a warning if `warns`. `known` as
  /// for open.
  /// Throws   Error for one that can't be read or has another version
  std::optional<Checkpoint> newest(bool warns = true, const Checkpoint* known = nullptr, Index last = any_step) const;

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
  void remove_past(Index last) const;

  /// Removes a checkpoint that a run wrote.
  void remove(Index step) const { io::remove_whole_folder(folder_of(step), detail::stranger_in_checkpoint); }

  /// Removes the oldest checkpoints until `limit` are left, except `keep`. Nothing is removed unless the newest is
  /// intact. Those past step `last` neither count nor go.
  void rotate(Index limit, std::optional<Index> keep, Index last = any_step) const;

 private:
  io::Path folder_;
};

}  // namespace lora::run

#ifndef LORA_COMPILED
#  include "lora/run/checkpoint.ipp"
#endif
