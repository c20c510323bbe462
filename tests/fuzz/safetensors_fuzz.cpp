#include <cstddef>
#include <cstdint>
#include <span>

#include "fuzz/target.hpp"
#include "lora/io/formats/safetensors.hpp"

namespace fuzz_safetensors {

LORA_FUZZ_TARGET(safetensors, data, size) {
  try {
    const auto file = lora::io::Safetensors::parse(std::as_bytes(std::span(data, size)), "input");
    std::size_t total = 0;
    for (const auto& tensor : file.tensors()) {
      if (file.find(tensor.name) != &tensor) __builtin_trap();
      for (const std::byte b : tensor.bytes) total += static_cast<std::size_t>(b);  // every byte can be read
    }
    volatile std::size_t sink = total;
    (void)sink;
  } catch (const lora::Error&) {}
}

}  // namespace fuzz_safetensors
