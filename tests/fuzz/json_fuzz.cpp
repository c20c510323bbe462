#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "fuzz/target.hpp"
#include "lora/io/formats/json.hpp"

namespace fuzz_json {

LORA_FUZZ_TARGET(json, data, size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const bool comments : {false, true}) {
    try {
      const auto value = lora::io::parse_json(text, "input", comments);
      const std::string written = lora::io::to_text(value, -1);
      if (lora::io::parse_json(written, "written") != value) __builtin_trap();
    } catch (const lora::Error&) {}
  }
}

}  // namespace fuzz_json
