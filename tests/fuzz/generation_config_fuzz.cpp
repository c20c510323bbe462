#include <cstddef>
#include <cstdint>
#include <optional>

#include "fuzz/target.hpp"
#include "lora/inputs/model_files.hpp"
#include "lora/model/weights/generation_config.hpp"
#include "support/byte_tokenizer.hpp"
#include "support/fuzz_folder.hpp"
#include "support/random_model.hpp"

namespace fuzz_generation_config {

using namespace lora;

namespace {

struct Model {
  test::FuzzFolder folder;
  model::Source source;
  tokenizer::Tokenizer tokenizer;

  Model() : source(made(folder)), tokenizer(tokenizer::Tokenizer::from_folder(folder.path())) {}

  static model::Source made(const test::FuzzFolder& folder) {
    test::write_random_model(folder.path(), {.vocabulary = 260});
    folder.put("tokenizer.json", test::byte_tokenizer_json());
    return model::Source::open(folder.path());
  }
};

}  // namespace

/// A generation_config.json.
LORA_FUZZ_TARGET(generation_config, data, size) {
  static const Model model;
  model.folder.put("generation_config.json", test::text_of(data, size));
  try {
    for (const auto id : inputs::stop_ids(model.source, model.tokenizer, std::nullopt))
      if (id < 0) __builtin_trap();
    const io::JsonFile json(model.folder.path() / "generation_config.json");
    (void)model::unfollowed_advice(json.view());
    (void)model::sampling_advice(json.view());
  } catch (const Error&) {}
}

}  // namespace fuzz_generation_config
