#pragma once

#include <cstdint>

#include "lora/core/config.hpp"
#include "lora/run/checkpoint.hpp"

namespace lora::run::detail {

/// A damaged checkpoint, as opposed to one that can't be read or has another version.
class Damaged : public FormatError {
 public:
  using FormatError::FormatError;
};

/// Reads the state file.
/// Throws   Damaged
LORA_INLINE io::Json read_state(const io::Path& folder) {
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
LORA_INLINE std::string take_checksum(io::Json& json, const std::string& where) {
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
LORA_INLINE Checkpoint verified(io::Path folder, const Checkpoint* known = nullptr) {
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

LORA_INLINE std::string stranger_in_checkpoint(const io::Path& folder) {
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

}  // namespace lora::run::detail

namespace lora::run {

LORA_INLINE void Checkpoints::recover() const {
  io::clear_unfinished(
      folder_, io::place_among([](const std::string& name) { return detail::checkpoint_step(name).has_value(); }));
}

LORA_INLINE std::vector<Index> Checkpoints::steps() const {
  std::vector<Index> steps;
  for (const io::Path& entry : io::entries_of(folder_))
    if (const auto step = detail::checkpoint_step(entry)) steps.push_back(*step);
  std::sort(steps.begin(), steps.end());
  return steps;
}

LORA_INLINE std::vector<Index> Checkpoints::own_steps() const {
  auto all = steps();
  std::erase_if(all, [&](Index step) { return !detail::stranger_in_checkpoint(folder_of(step)).empty(); });
  return all;
}

LORA_INLINE void Checkpoints::expect_places(Index first, Index last) const {
  for (const Index step : steps()) {
    if (step <= first || step > last) continue;
    if (const auto what = detail::stranger_in_checkpoint(folder_of(step)); !what.empty())
      fail<ConfigError>("key output_dir: ", folder_of(step).native(), " is in the way: ", what, "; move it elsewhere");
  }
}

LORA_INLINE Checkpoint Checkpoints::open(io::Path folder, const Checkpoint* known) {
  std::error_code unreadable;
  if (!std::filesystem::is_directory(folder, unreadable)) fail<IoError>("no checkpoint at ", folder.native());
  return detail::verified(std::move(folder), known);
}

LORA_INLINE std::optional<Checkpoint> Checkpoints::find(Index step, std::string& why) const {
  const io::Path folder = folder_of(step);
  try {
    if (io::is_there(folder)) return detail::verified(folder);
    why = concat("no checkpoint at ", folder.native());
  } catch (const detail::Damaged& error) {
    why = error.what();
  }
  return std::nullopt;
}

LORA_INLINE std::optional<Checkpoint> Checkpoints::newest(bool warns, const Checkpoint* known, Index last) const {
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

LORA_INLINE void Checkpoints::remove_past(Index last) const {
  const auto own = own_steps();
  for (auto step = own.rbegin(); step != own.rend() && *step > last; ++step) {
    log::warn("removing ", folder_of(*step).native(), ", which lies past step ", last,
              " that this run has gone back to");
    remove(*step);
  }
}

LORA_INLINE void Checkpoints::rotate(Index limit, std::optional<Index> keep, Index last) const {
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

}  // namespace lora::run
