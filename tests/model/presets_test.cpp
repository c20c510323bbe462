#include "lora/model/description/presets.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <set>
#include <string>
#include <string_view>

#include "lora/model/description/config.hpp"
#include "lora/model/description/tensors.hpp"

namespace presets_test {

using namespace lora;

namespace {

/// Of the published models, the counts that the hub shows of their files.
struct Size {
  const char* name;
  const char* model_type;
  Index all;
};
constexpr Size sizes[] = {{"tiny", "qwen3", 21'809'792},
                          {"small", "qwen3", 45'192'448},
                          {"medium", "qwen3", 101'393'920},
                          {"large", "qwen3", 212'658'944},
                          {"qwen2.5-0.5b", "qwen2", 494'032'768},
                          {"qwen2.5-1.5b", "qwen2", 1'543'714'304},
                          {"qwen2.5-3b", "qwen2", 3'085'938'688},
                          {"qwen2.5-7b", "qwen2", 7'615'616'512},
                          {"qwen2.5-14b", "qwen2", 14'770'033'664},
                          {"qwen2.5-32b", "qwen2", 32'763'876'352},
                          {"qwen2.5-72b", "qwen2", 72'706'203'648},
                          {"qwen3-0.6b", "qwen3", 596'049'920},
                          {"qwen3-1.7b", "qwen3", 1'720'574'976},
                          {"qwen3-4b", "qwen3", 4'022'468'096},
                          {"qwen3-8b", "qwen3", 8'190'735'360},
                          {"qwen3-14b", "qwen3", 14'768'307'200},
                          {"qwen3-32b", "qwen3", 32'762'123'264},
                          {"smollm2-135m", "llama", 134'515'008},
                          {"smollm2-360m", "llama", 361'821'120},
                          {"smollm2-1.7b", "llama", 1'711'376'384}};

}  // namespace

TEST_CASE("presets: each has the size of the model that it is named after, or that the documentation states") {
  REQUIRE(model::presets().size() == std::size(sizes));
  for (std::size_t i = 0; i < std::size(sizes); ++i) {
    const Size& size = sizes[i];
    CAPTURE(size.name);
    CHECK(model::preset_names()[i] == size.name);
    const io::Json json = model::preset_config(size.name);
    const model::Config config = model::parse_config(json, "preset");
    CHECK(config.model_type == size.model_type);
    CHECK(model::parameters_of(config) == size.all);
    CHECK(config.qk_norm == (config.model_type == "qwen3"));
    const bool small = size.all < 300'000'000 && config.model_type == "qwen3";
    CHECK(json.at("torch_dtype") == (small ? "float32" : "bfloat16"));
    CHECK(config.rope.theta == (config.model_type != "llama" ? 1e6 : config.hidden_size == 2048 ? 1.3e5 : 1e5));
    CHECK(config.rms_norm_eps == (config.model_type == "llama" ? 1e-5 : 1e-6));
    CHECK(json.at("max_position_embeddings") == (config.model_type == "llama"             ? 8192
                                                 : config.model_type == "qwen3" && !small ? 40960
                                                                                          : 32768));
  }
}

TEST_CASE("presets: those for training from scratch have the rest that the documentation states") {
  const std::pair<const char*, Index> without_embedding[] = {
      {"tiny", 2'361'984}, {"small", 6'296'832}, {"medium", 23'602'688}, {"large", 95'972'096}};
  for (const auto& preset : without_embedding) {
    const std::string name = preset.first;
    CAPTURE(name);
    const model::Config config = model::parse_config(model::preset_config(name), "preset");
    CHECK(config.tie_word_embeddings);
    CHECK(model::parameters_of(config) - config.vocab_size * config.hidden_size == preset.second);
  }
}

TEST_CASE("presets: config.json says whose model it is, and what a name that none has may be is said") {
  const auto text = [](const char* name, const char* field) {
    const io::Json json = model::preset_config(name);
    return json.contains(field) ? io::to_text(json.at(field), -1) : "none";
  };
  CHECK(text("tiny", "architectures") == R"(["Qwen3ForCausalLM"])");
  CHECK(text("qwen2.5-7b", "architectures") == R"(["Qwen2ForCausalLM"])");
  CHECK(text("smollm2-360m", "architectures") == R"(["LlamaForCausalLM"])");
  CHECK(text("qwen3-8b", "attention_bias") == "false");
  CHECK(text("smollm2-360m", "attention_bias") == "false");
  CHECK(text("qwen2.5-7b", "attention_bias") == "none");
  CHECK(text("qwen2.5-7b", "tie_word_embeddings") == "false");
  CHECK(io::to_text(model::preset_config("qwen2.5-7b"), -1) ==
        "{\"architectures\":[\"Qwen2ForCausalLM\"],\"model_type\":\"qwen2\",\"vocab_size\":152064,"
        "\"hidden_size\":3584,\"intermediate_size\":18944,\"num_hidden_layers\":28,\"num_attention_heads\":28,"
        "\"num_key_value_heads\":4,\"head_dim\":128,\"hidden_act\":\"silu\",\"max_position_embeddings\":32768,"
        "\"initializer_range\":0.02,\"rms_norm_eps\":1e-06,\"rope_theta\":1000000.0,"
        "\"tie_word_embeddings\":false,\"torch_dtype\":\"bfloat16\"}");
  CHECK_THROWS_WITH_AS(model::preset_config("huge"),
                       "key model_preset: given huge, allowed: one of tiny, small, medium, large, qwen2.5-0.5b, "
                       "qwen2.5-1.5b, qwen2.5-3b, qwen2.5-7b, qwen2.5-14b, qwen2.5-32b, qwen2.5-72b, qwen3-0.6b, "
                       "qwen3-1.7b, qwen3-4b, qwen3-8b, qwen3-14b, qwen3-32b, smollm2-135m, smollm2-360m, smollm2-1.7b",
                       ConfigError);
}

}  // namespace presets_test
