#include <cstddef>
#include <cstdint>

#include "fuzz/target.hpp"
#include "lora/settings/yaml_file.hpp"
#include "support/fuzz_folder.hpp"

namespace fuzz_run_yaml {

using namespace lora;

/// The file of --config in YAML.
LORA_FUZZ_TARGET(run_yaml, data, size) {
  settings::Config config;
  try {
    (void)settings::read_settings(config, io::parse_yaml(test::text_of(data, size), "input"), "input");
  } catch (const Error&) {
    return;
  }
  // What it set is what a file of JSON may set.
  for (const settings::Key& key : settings::keys())
    if (settings::offence(config, key)) __builtin_trap();
  settings::Config again;
  settings::read_settings(again, settings::to_json(config, ~0u), "written");
  if (settings::to_json(again, ~0u) != settings::to_json(config, ~0u)) __builtin_trap();
}

}  // namespace fuzz_run_yaml
