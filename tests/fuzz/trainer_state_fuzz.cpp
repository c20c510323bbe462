#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "fuzz/target.hpp"
#include "lora/run/checkpoint.hpp"
#include "support/fuzz_folder.hpp"

namespace fuzz_trainer_state {

using namespace lora;

namespace {

/// The checkpoint of step 4, with one file beside its state.
const test::FuzzFolder& folder() {
  static const test::FuzzFolder folder;
  static const bool made = [] {
    std::filesystem::create_directories(folder / "checkpoints" / "checkpoint-4");
    folder.put("checkpoints/checkpoint-4/x", "ab");
    return true;
  }();
  static_cast<void>(made);
  return folder;
}

/// The input, with the checksum that its content has, so that what lies behind that is reached as well.
std::string signed_text(std::string_view input) {
  io::Json json;
  try {
    json = io::parse_json(input, "input");
  } catch (const Error&) {
    return std::string(input);
  }
  if (!json.is_object() || json.find("checksum") == json.end()) return std::string(input);
  json.erase("checksum");
  json["checksum"] = checksum_text(checksum(io::to_text(json)));
  return io::to_text(json);
}

}  // namespace

/// A trainer_state.json.
LORA_FUZZ_TARGET(trainer_state, data, size) {
  folder().put("checkpoints/checkpoint-4/trainer_state.json", signed_text(test::text_of(data, size)));
  const run::Checkpoints checkpoints(folder().path());
  try {
    static_cast<void>(checkpoints.own_steps());
    const auto checkpoint = checkpoints.newest(false);
    if (!checkpoint) return;
    // What is written says the same when it is read again.
    const io::Json written = run::detail::to_json(checkpoint->state);
    if (run::detail::to_json(run::detail::parse_state({written, "written"})) != written) __builtin_trap();
  } catch (const Error&) {}
}

}  // namespace fuzz_trainer_state
