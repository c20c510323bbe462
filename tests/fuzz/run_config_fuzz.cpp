#include <cstddef>
#include <cstdint>

#include "lora/settings/settings.hpp"
#include "support/fuzz_folder.hpp"

using namespace lora;

/// The file of --config.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  settings::Config config;
  try {
    settings::read_settings(config, io::parse_json(test::text_of(data, size), "input", true), "input");
  } catch (const Error&) {
    return 0;
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
  return 0;
}
