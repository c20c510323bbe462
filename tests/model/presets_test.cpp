#include "lora/model/presets.hpp"

#include <doctest/doctest.h>

#include <string>
#include <utility>

#include "lora/model/config.hpp"
#include "lora/model/tensors.hpp"

namespace presets_test {

using namespace lora;

TEST_CASE("presets: each has the size that the documentation states") {
  struct Size {
    const char* name;
    Index all, without_embedding;
  };
  for (const Size& size : {Size{"tiny", 21'809'792, 2'361'984}, Size{"small", 45'192'448, 6'296'832},
                           Size{"medium", 101'393'920, 23'602'688}, Size{"large", 212'658'944, 95'972'096}}) {
    CAPTURE(size.name);
    const model::Config config = model::parse_config(model::preset_config(size.name), "preset");
    CHECK(config.model_type == "qwen3");
    CHECK(config.tie_word_embeddings);
    CHECK(io::to_text(model::preset_config(size.name).at("architectures"), -1) == R"(["Qwen3ForCausalLM"])");
    CHECK(config.qk_norm);
    CHECK(model::parameters_of(config) == size.all);
    CHECK(size.all - config.vocab_size * config.hidden_size == size.without_embedding);
  }
  CHECK_THROWS_WITH_AS(model::preset_config("huge"),
                       "key model_preset: given huge, allowed: one of tiny, small, medium, large", ConfigError);
}

}  // namespace presets_test
