#include <cstddef>
#include <cstdint>

#include "lora/train/settings.hpp"
#include "support/fuzz_folder.hpp"

using namespace lora;

/// The file of --config.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  train::Config config;
  try {
    train::read_settings(config, io::parse_json(test::text_of(data, size), "input", true), "input");
  } catch (const Error&) {
    return 0;
  }
  for (const auto command : {train::train_command, train::eval_command, train::generate_command, train::merge_command,
                             train::tokenize_command}) {
    try {
      train::validate(config, command);
    } catch (const Error&) {
      continue;
    }
    // run_config.json reads back and says the same.
    const io::Json written = train::settings_of(config, command);
    train::Config again;
    train::read_settings(again, written, "written");
    if (train::settings_of(again, command) != written) __builtin_trap();
  }
  return 0;
}
