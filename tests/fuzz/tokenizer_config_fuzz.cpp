#include <cstddef>
#include <cstdint>
#include <vector>

#include "fuzz/target.hpp"
#include "lora/data/batches/encode.hpp"
#include "lora/tokenizer/tokenizer.hpp"
#include "support/byte_tokenizer.hpp"
#include "support/fuzz_folder.hpp"

namespace fuzz_tokenizer_config {

using namespace lora;

namespace {

const test::FuzzFolder& folder() {
  static const test::FuzzFolder folder;
  static const bool made = (folder.put("tokenizer.json", test::byte_tokenizer_json()), true);
  static_cast<void>(made);
  return folder;
}

}  // namespace

/// A tokenizer_config.json.
LORA_FUZZ_TARGET(tokenizer_config, data, size) {
  folder().put("tokenizer_config.json", test::text_of(data, size));
  try {
    const auto tokenizer = tokenizer::Tokenizer::from_folder(folder().path());
    for (const auto& id : {tokenizer.bos(), tokenizer.eos()})
      if (id) static_cast<void>(tokenizer.decode(std::vector<std::int32_t>{*id}));
    const auto encoding = tokenizer.encode("a b<|im_end|> <x>\xC3\xA9", true);
    if (encoding.ids.size() != encoding.begins.size()) __builtin_trap();
    for (const auto id : encoding.ids)
      if (id < 0 || id >= tokenizer.vocab_size()) __builtin_trap();
    static_cast<void>(tokenizer.decode(encoding.ids));
    static_cast<void>(data::choose_template("auto", tokenizer));
  } catch (const Error&) {}
}

}  // namespace fuzz_tokenizer_config
