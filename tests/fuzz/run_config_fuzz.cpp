#include <cstddef>
#include <cstdint>

#include "fuzz/target.hpp"
#include "lora/settings/settings.hpp"
#include "support/fuzz_folder.hpp"

namespace fuzz_run_config {

using namespace lora;

/// The file of --config.
LORA_FUZZ_TARGET(run_config, data, size) {
  settings::Config config;
  try {
    settings::read_settings(config, io::parse_json(test::text_of(data, size), "input", true), "input");
  } catch (const Error&) {
    return;
  }
  for (const auto command : settings::all_commands) {
    try {
      settings::validate(config, command);
    } catch (const Error&) {
      continue;
    }
    // run_config.json reads back and says the same.
    const io::Json written = settings::to_json(config, command);
    settings::Config again;
    settings::read_settings(again, written, "written");
    if (settings::to_json(again, command) != written) __builtin_trap();
  }
}

}  // namespace fuzz_run_config
