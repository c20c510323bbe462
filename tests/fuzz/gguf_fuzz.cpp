#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fuzz/target.hpp"
#include "lora/io/formats/gguf.hpp"

namespace fuzz_gguf {

namespace {

/// Reads a key as T; the file may hold it as something else.
template <class T>
void read(const lora::io::Gguf& file, const char* key) {
  try {
    (void)file.get<T>(key);
  } catch (const lora::Error&) {}
}

}  // namespace

LORA_FUZZ_TARGET(gguf, data, size) {
  try {
    const auto file = lora::io::Gguf::parse(std::as_bytes(std::span(data, size)), "input");
    for (const char* key : {"general.architecture", "general.alignment", "tokenizer.ggml.tokens", "k"}) {
      read<std::string>(file, key);
      read<std::int32_t>(file, key);
      read<std::uint64_t>(file, key);
      read<float>(file, key);
      read<bool>(file, key);
      read<std::vector<std::string>>(file, key);
      read<std::vector<float>>(file, key);
      read<std::vector<std::int32_t>>(file, key);
    }
    std::size_t total = 0;
    for (const auto& tensor : file.tensors()) {
      if (file.find(tensor.name) != &tensor) __builtin_trap();
      for (const std::byte b : tensor.bytes) total += static_cast<std::size_t>(b);  // every byte can be read
    }
    volatile std::size_t sink = total;
    (void)sink;
  } catch (const lora::Error&) {}
}

}  // namespace fuzz_gguf
