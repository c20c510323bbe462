#include "lora/model/description/tensors.hpp"

#include <doctest/doctest.h>

#include <map>
#include <set>
#include <string>

#include "support/random_gguf.hpp"
#include "support/random_model.hpp"

namespace tensors_test {

using namespace lora;
using namespace lora::test;

TEST_CASE("tensors: the description names what files of every type hold, each once, with its shape and GGUF's name") {
  for (const char* family : {"gemma2", "gemma3_text", "llama", "mistral", "phi3", "qwen2", "qwen3", "smollm3"})
    for (const bool tied : {false, true}) {
      CAPTURE(family);
      CAPTURE(tied);
      RandomModel shape;
      shape.family = family;
      shape.tied = tied;
      shape.heads = 6;
      if (shape.family == "llama") shape.more = {{"attention_bias", true}, {"mlp_bias", true}};
      const model::Config config = model::parse_config(config_json(shape), "config.json");
      std::map<std::string, Shape> expected;
      Index numbers = 0;
      for (const auto& tensor : random_tensors(shape)) {
        expected[tensor.name] = tensor.shape;
        numbers += tensor.shape.count();
      }
      std::set<std::string> gguf_names;
      const auto tensors = model::tensors_of(config);
      CHECK(tensors.size() == expected.size());
      for (const auto& info : tensors) {
        CAPTURE(info.name);
        REQUIRE(expected.count(info.name) == 1);
        CHECK(info.shape == expected[info.name]);
        CHECK(info.gguf_name == gguf_name(info.name, config.post_norms));
        gguf_names.insert(info.gguf_name);
        CHECK((info.layer >= 0) == info.name.starts_with("model.layers."));
        if (info.layer >= 0) CHECK(info.name.starts_with(concat("model.layers.", info.layer, ".")));
        CHECK(info.projection.empty() == (info.name.find("_proj") == std::string::npos));
        const bool turned = (shape.family == "llama" || shape.family == "mistral" || shape.family == "smollm3") &&
                            (info.projection == "q_proj" || info.projection == "k_proj");
        CHECK(info.gguf_heads == (!turned ? 0 : info.projection == "q_proj" ? 6 : 2));
      }
      CHECK(gguf_names.size() == tensors.size());
      CHECK(model::parameters_of(config) == numbers);
    }
}

}  // namespace tensors_test
