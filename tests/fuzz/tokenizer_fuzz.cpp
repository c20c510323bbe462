#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "fuzz/target.hpp"
#include "lora/tokenizer/text_stream.hpp"
#include "lora/tokenizer/tokenizer.hpp"

namespace fuzz_tokenizer {

/// A tokenizer.json, a zero byte, and a text for it; or a GGUF file, for a fixed text.
LORA_FUZZ_TARGET(tokenizer, data, size) {
  using lora::tokenizer::Tokenizer;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  try {
    const bool gguf = input.substr(0, 4) == "GGUF";
    const std::size_t end = gguf ? size : input.find('\0');
    const auto text = end < size ? input.substr(end + 1) : std::string_view("a b1  <x>e\u0301\n'll");
    const Tokenizer tokenizer =
        gguf ? Tokenizer::from_gguf(lora::io::Gguf::parse(std::as_bytes(std::span(data, size)), "input"))
             : Tokenizer::from_json(input.substr(0, end), "input");
    const auto encoding = tokenizer.encode(text, true);
    if (encoding.ids.size() != encoding.begins.size()) __builtin_trap();
    for (const std::size_t begin : encoding.begins)
      if (begin > text.size()) __builtin_trap();
    // What encode gives, decode knows; and what it writes is UTF-8 that can be encoded again.
    for (const bool skip : {false, true}) (void)tokenizer.encode(tokenizer.decode(encoding.ids, skip));
    // So is what is streamed, also of tokens in another order, whose bytes make no characters.
    auto ids = encoding.ids;
    for (int i = 0; i < 2; ++i, std::reverse(ids.begin(), ids.end())) {
      lora::tokenizer::TextStream stream(tokenizer);
      std::string given;
      for (const std::int32_t id : ids) given += stream.add(id);
      (void)tokenizer.encode(given + stream.finish());
    }
  } catch (const lora::Error&) {}
}

}  // namespace fuzz_tokenizer
