// config.json and GGUF metadata: what is read from both spellings, transformers' defaults, what is refused by name, and
// what is written back.

#include "lora/model/description/config.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "lora/model/description/config_gguf.hpp"
#include "lora/model/description/config_json.hpp"
#include "support/message_of.hpp"
#include "support/random_gguf.hpp"
#include "support/temp_folder.hpp"

namespace config_test {

namespace {

using namespace lora;
using namespace lora::test;
using Scaling = nn::RopeConfig::Scaling;

/// Without anything that has a default.
io::Json least(const std::string& type) {
  return {{"model_type", type},     {"hidden_size", 64},        {"intermediate_size", 96},
          {"num_hidden_layers", 8}, {"num_attention_heads", 4}, {"vocab_size", 99}};
}
model::Config parsed(io::Json json, const io::Json& changes = io::Json::object()) {
  json.update(changes);
  return model::parse_config(json, "config.json");
}

/// Every kind of rotary scaling with all that it knows, beside theta.
const io::Json unscaled = {{"rope_type", "default"}};
const io::Json linear_scaling = {{"rope_type", "linear"}, {"factor", 2.5}};
const io::Json llama3_scaling = {{"rope_type", "llama3"},
                                 {"factor", 8},
                                 {"low_freq_factor", 2},
                                 {"high_freq_factor", 5},
                                 {"original_max_position_embeddings", 100}};
const io::Json yarn_scaling = {{"rope_type", "yarn"},
                               {"factor", 4},
                               {"beta_fast", 16},
                               {"beta_slow", 2},
                               {"attention_factor", 1.25},
                               {"mscale", 0.5},
                               {"mscale_all_dim", 0.75},
                               {"truncate", false},
                               {"original_max_position_embeddings", 100}};

/// What a GGUF file of a small model is read as.
struct GgufFile {
  TempFolder folder;
  RandomModel shape;

  explicit GgufFile(const std::string& family) { shape.family = family; }
  model::Config read(const GgufChanges& changes = {}) {
    write_gguf(folder / "x.gguf", shape, random_tensors(shape), DType::f32, changes);
    return model::read_config(io::Gguf::open(folder / "x.gguf"));
  }
  model::Config with(const std::function<void(GgufWriter&)>& add) {
    GgufChanges changes;
    changes.add = add;
    return read(changes);
  }
};

/// What a llama model's converter puts into rope_freqs.weight for these settings.
/// Source   llama.cpp, convert_hf_to_gguf.py, LlamaModel.generate_extra_tensors
std::vector<float> rope_freqs(Index width, double theta, double factor, double low, double high, double length) {
  std::vector<float> factors;
  for (Index i = 0; i < width; i += 2) {
    const double wave = 2 * std::numbers::pi * std::pow(theta, static_cast<double>(i) / static_cast<double>(width));
    const double smooth = (length / wave - low) / (high - low);
    factors.push_back(static_cast<float>(wave < length / high  ? 1
                                         : wave > length / low ? factor
                                                               : 1 / ((1 - smooth) / factor + smooth)));
  }
  return factors;
}

}  // namespace

TEST_CASE("config: defaults of each type are those of transformers") {
  struct Expected {
    const char* type;
    Index kv_heads, head_dim;
    bool tied, qkv_bias, o_bias, qk_norm;
    double theta;
    std::vector<bool> rotates;
    std::optional<std::int32_t> bos, eos, pad;
  };
  const std::vector<bool> all(8, true), three_of_four{true, true, true, false, true, true, true, false};
  for (const auto& e :
       {Expected{"llama", 4, 16, false, false, false, false, 1e4, all, 1, 2, {}},
        Expected{"mistral", 8, 16, false, false, false, false, 1e4, all, 1, 2, {}},
        Expected{"phi3", 4, 16, false, false, false, false, 1e4, all, 1, 32000, 32000},
        Expected{"qwen2", 32, 16, false, true, false, false, 1e4, all, {}, {}, {}},
        Expected{"qwen3", 32, 128, false, false, false, true, 1e4, all, {}, {}, {}},
        Expected{"smollm3", 4, 16, true, false, false, false, 2e6, three_of_four, 128000, 128001, 128004}}) {
    CAPTURE(e.type);
    auto json = least(e.type);
    if (e.kv_heads > 4) json["num_attention_heads"] = 32;
    const auto c = parsed(json);
    CHECK(c.model_type == e.type);
    CHECK((c.hidden_size == 64 && c.intermediate_size == 96 && c.num_hidden_layers == 8 && c.vocab_size == 99));
    CHECK(c.num_key_value_heads == e.kv_heads);
    CHECK(c.head_dim == (e.kv_heads > 4 && e.head_dim == 16 ? 2 : e.head_dim));
    CHECK(c.tie_word_embeddings == e.tied);
    CHECK((c.qkv_bias == e.qkv_bias && c.o_bias == e.o_bias && !c.mlp_bias && c.qk_norm == e.qk_norm));
    CHECK(c.rms_norm_eps == (c.model_type == "phi3" ? 1e-5 : 1e-6));
    CHECK(c.fused == (c.model_type == "phi3"));
    CHECK(c.rope.theta == e.theta);
    CHECK(c.rope.scaling == Scaling::none);
    CHECK(c.rotates == e.rotates);
    CHECK(c.windows == std::vector<Index>(8, c.model_type == "mistral" ? 4096 : 0));
    CHECK(c.dtype.empty());
    CHECK(c.eos_token_ids == (e.eos ? std::vector{*e.eos} : std::vector<std::int32_t>{}));
    CHECK((c.bos_token_id == e.bos && c.pad_token_id == e.pad));
    const auto none = parsed(json, {{"eos_token_id", nullptr}, {"bos_token_id", nullptr}, {"pad_token_id", nullptr}});
    CHECK((none.eos_token_ids.empty() && !none.bos_token_id && !none.pad_token_id));
    // null is not the same as left out
    CHECK(parsed(json, {{"num_key_value_heads", nullptr}}).num_key_value_heads == c.num_attention_heads);
  }
}

TEST_CASE("config: fields that are there") {
  for (const char* type : {"llama", "mistral", "phi3", "qwen2", "qwen3", "smollm3"}) {
    CAPTURE(type);
    const std::string name = type;
    const auto c = parsed(least(type), {{"num_key_value_heads", 2},
                                        {"head_dim", 24},
                                        {"rms_norm_eps", 1e-5},
                                        {"tie_word_embeddings", name != "smollm3"},
                                        {"attention_bias", true},
                                        {"mlp_bias", true},
                                        {"max_position_embeddings", 512},
                                        {"eos_token_id", {5, 7}},
                                        {"bos_token_id", 3},
                                        {"pad_token_id", 4},
                                        {"initializer_range", 0.5},
                                        {"hidden_act", "silu"}});
    CHECK((c.pad_token_id == 4 && c.initializer_range == 0.5));
    const auto defaults = parsed(least(type), {{"num_key_value_heads", 2}});
    CHECK(defaults.initializer_range == 0.02);
    CHECK(parsed(least(type), {{"num_key_value_heads", 2}, {"initializer_range", 0}}).initializer_range == 0.02);
    CHECK(defaults.pad_token_id == (name == "smollm3" ? std::optional(128004)
                                    : name == "phi3"  ? std::optional(32000)
                                                      : std::nullopt));
    CHECK(parsed(least(type), {{"num_key_value_heads", 2}, {"pad_token_id", nullptr}}).pad_token_id == std::nullopt);
    CHECK((c.num_key_value_heads == 2 && c.head_dim == 24 && c.max_position_embeddings == 512));
    CHECK(c.rms_norm_eps == 1e-5);
    CHECK(c.tie_word_embeddings == (name != "smollm3"));
    const bool without_biases = name == "mistral" || name == "phi3";  // in transformers
    CHECK(c.qkv_bias == !without_biases);
    CHECK(c.o_bias == (name != "qwen2" && !without_biases));
    CHECK(c.mlp_bias == (name == "llama" || name == "smollm3"));
    CHECK(c.eos_token_ids == std::vector<std::int32_t>{5, 7});
    CHECK(c.bos_token_id == 3);
  }
  CHECK(parsed(least("llama"), {{"eos_token_id", 9}}).eos_token_ids == std::vector<std::int32_t>{9});
  CHECK(parsed(least("llama"), {{"dtype", "bfloat16"}}).dtype == "bfloat16");
  CHECK(parsed(least("llama"), {{"torch_dtype", "float16"}}).dtype == "float16");
}

TEST_CASE("config: rotary settings in the new spelling and the old one") {
  const auto expect = [](const io::Json& scaling, const auto& check) {
    io::Json inside = scaling;  // new: all in one object
    inside["rope_theta"] = 5e5;
    io::Json older = scaling;  // old: theta beside it, and the kind as "type" before that
    older["type"] = older["rope_type"];
    older.erase("rope_type");
    const auto fresh = parsed(least("llama"), {{"rope_parameters", inside}});
    const auto old = parsed(least("llama"), {{"rope_theta", 5e5}, {"rope_scaling", scaling}});
    const auto oldest = parsed(least("llama"), {{"rope_theta", 5e5}, {"rope_scaling", older}});
    for (const auto& c : {fresh, old, oldest}) {
      CHECK(c.rope.theta == 5e5);
      check(c.rope);
    }
  };
  expect(unscaled, [](const nn::RopeConfig& rope) { CHECK(rope.scaling == Scaling::none); });
  expect(linear_scaling, [](const nn::RopeConfig& rope) {
    CHECK(rope.scaling == Scaling::linear);
    CHECK(rope.factor == 2.5);
  });
  expect(llama3_scaling, [](const nn::RopeConfig& rope) {
    CHECK(rope.scaling == Scaling::llama3);
    CHECK((rope.factor == 8 && rope.low_freq_factor == 2 && rope.high_freq_factor == 5));
    CHECK(rope.original_max_position_embeddings == 100);
  });
  expect(yarn_scaling, [](const nn::RopeConfig& rope) {
    CHECK(rope.scaling == Scaling::yarn);
    CHECK((rope.beta_fast == 16 && rope.beta_slow == 2 && rope.attention_factor == 1.25));
    CHECK((rope.mscale == 0.5 && rope.mscale_all_dim == 0.75 && !rope.truncate));
  });
  const io::Json yarn = {{"rope_type", "yarn"}, {"factor", 4}};
  CHECK(parsed(least("llama"), {{"rope_scaling", yarn}, {"max_position_embeddings", 512}})
            .rope.original_max_position_embeddings == 512);
  CHECK(parsed(least("llama"), {{"rope_theta", 7.0}}).rope.theta == 7);
}

TEST_CASE("config: a scaled model was made for its factor times the original length, and for what it says at least") {
  const auto longest = [](const io::Json& scaling) {
    return model::longest_sequence(
        parsed(least("llama"), {{"rope_scaling", scaling}, {"max_position_embeddings", 512}}));
  };
  CHECK(longest(nullptr) == 512);
  CHECK(longest({{"rope_type", "linear"}, {"factor", 4.0}}) == 2048);
  for (const char* type : {"yarn", "llama3"}) {
    io::Json scaling = {{"rope_type", type}, {"factor", 4.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}};
    scaling["original_max_position_embeddings"] = 100;
    CHECK(longest(scaling) == 512);
    scaling["original_max_position_embeddings"] = 300;
    CHECK(longest(scaling) == 1200);
  }
}

// What transformers 5 makes of these: rope_scaling takes the place of rope_parameters, unless it is empty.
TEST_CASE("config: rope_scaling beside rope_parameters counts as in transformers") {
  io::Json inside = unscaled;
  inside["rope_theta"] = 5e5;
  const auto both = parsed(least("llama"), {{"rope_parameters", inside}, {"rope_scaling", linear_scaling}});
  CHECK(both.rope.scaling == Scaling::linear);
  CHECK(both.rope.theta == 1e4);
  const auto outside =
      parsed(least("llama"), {{"rope_parameters", inside}, {"rope_scaling", linear_scaling}, {"rope_theta", 7.0}});
  CHECK(outside.rope.theta == 7);
  for (const io::Json& none : {io::Json(), io::Json::object()}) {
    const auto plain = parsed(least("llama"), {{"rope_parameters", inside}, {"rope_scaling", none}});
    CHECK((plain.rope.scaling == Scaling::none && plain.rope.theta == 5e5));
  }
  io::Json nested = io::Json::object();
  nested["full_attention"] = inside;
  CHECK(message_of([&] {
          parsed(least("qwen3"), {{"rope_parameters", nested}});
        }) ==
        "config.json: \"rope_parameters\" has settings for \"full_attention\" alone, which is not supported; expected "
        "one set of numbers for all layers");
}

TEST_CASE("config: no_rope_layers, where 1 uses RoPE") {
  const auto rotates = [](const io::Json& changes) { return parsed(least("smollm3"), changes).rotates; };
  CHECK(rotates({{"no_rope_layers", {1, 0, 1, 1, 0, 1, 1, 1}}}) ==
        std::vector<bool>{true, false, true, true, false, true, true, true});
  CHECK(rotates({{"no_rope_layer_interval", 3}}) ==
        std::vector<bool>{true, true, false, true, true, false, true, true});
  CHECK(holds(message_of([&] { rotates({{"no_rope_layers", {1, 0}}}); }), "\"no_rope_layers\" has 2 entries for 8"));
}

TEST_CASE("config: what is not supported is refused with field and value") {
  const auto refused = [](const char* type, const io::Json& changes, const std::string& message) {
    CAPTURE(message);
    CHECK(holds(message_of([&] { parsed(least(type), changes); }), "config.json: " + message));
  };
  CHECK(message_of([] { model::parse_config(io::Json::array(), "config.json"); }) == "config.json: expected an object");
  refused("qwen3_moe", io::Json::object(), "\"model_type\" is \"qwen3_moe\"");
  refused("qwen3", {{"num_experts", 8}}, "\"num_experts\" is 8");
  refused("llama", {{"num_local_experts", 4}}, "\"num_local_experts\" is 4");
  refused("llama", {{"hidden_act", "gelu"}}, "\"hidden_act\" is \"gelu\", which is not supported; expected \"silu\"");
  refused("llama", {{"attention_dropout", 0.1}}, "\"attention_dropout\" is 0.1");
  refused("llama", {{"partial_rotary_factor", 0.5}}, "\"partial_rotary_factor\" is 0.5");
  refused("llama", {{"rope_parameters", {{"partial_rotary_factor", 0.5}}}},
          "rope_parameters: \"partial_rotary_factor\" is 0.5");
  refused("llama", {{"quantization_config", {{"bits", 4}}}}, "\"quantization_config\" is {\"bits\":4}");
  refused("llama", {{"head_dim", 15}}, "\"head_dim\" is 15; expected an even number");
  refused("llama", {{"num_key_value_heads", 3}}, "4 attention heads can't share 3 key heads");
  refused("llama", {{"rms_norm_eps", -1}}, "\"rms_norm_eps\" is -1");
  refused("llama", {{"rope_theta", 0.5}}, "\"rope_theta\" is 0.5");
  for (const auto& [key, most] : {std::pair{"hidden_size", 1 << 24},
                                  {"intermediate_size", 1 << 24},
                                  {"num_hidden_layers", 10'000},
                                  {"num_attention_heads", 1 << 16},
                                  {"num_key_value_heads", 1 << 16},
                                  {"head_dim", 1 << 16},
                                  {"vocab_size", 1 << 24}})
    for (const int size : {0, most + 1})
      refused("llama", {{key, size}}, concat("\"", key, "\" is ", size, "; expected 1 to ", most));
  refused("llama", {{"hidden_size", "64"}}, "\"hidden_size\" must be an integer in range, found \"64\"");
  refused("llama", {{"num_hidden_layers", nullptr}}, "\"num_hidden_layers\" is null");
  const auto scaled = [&](const io::Json& scaling, const std::string& message) {
    refused("llama", {{"rope_scaling", scaling}}, message);
  };
  scaled({{"rope_type", "dynamic"}, {"factor", 2}}, "\"rope_type\" is \"dynamic\"");
  scaled({{"type", "longrope"}}, "\"rope_type\" is \"longrope\"");
  scaled({{"rope_type", "linear"}}, "rope_scaling: \"factor\" is missing");
  scaled({{"rope_type", "linear"}, {"factor", 0}}, "the rope scaling \"factor\" is 0");
  scaled({{"rope_type", "llama3"}, {"factor", 8}}, "\"original_max_position_embeddings\" is missing");
  scaled(3, "\"rope_scaling\" must be an object, found 3");
  refused("llama", {{"max_position_embeddings", -1}}, "\"max_position_embeddings\" is -1");
  refused("llama", {{"eos_token_id", {2, -1}}}, "\"eos_token_id\" is -1; expected a token's id");
  refused("llama", {{"bos_token_id", -1}}, "\"bos_token_id\" is -1");
  const std::string found = message_of([] { parsed(least("llama"), {{"hidden_act", std::string(70'000, 'x')}}); });
  CHECK(found.size() < 300);
}

TEST_CASE("config: sliding windows of qwen2 and qwen3, from a layer on or by the types of layers") {
  for (const char* type : {"qwen2", "qwen3"}) {
    CAPTURE(type);
    const auto with = [&](io::Json changes) {
      changes["num_key_value_heads"] = 2;
      return parsed(least(type), changes).windows;
    };
    const auto said = [&](const io::Json& changes) { return message_of([&] { with(changes); }); };
    using Windows = std::vector<Index>;
    const Windows none(8, 0);
    CHECK(with({{"sliding_window", 4096}}) == none);
    CHECK(with({{"use_sliding_window", false}, {"sliding_window", 16}, {"max_window_layers", 0}}) == none);
    CHECK(with({{"use_sliding_window", true}, {"sliding_window", nullptr}, {"max_window_layers", 0}}) == none);
    CHECK(with({{"use_sliding_window", true}, {"sliding_window", 16}}) == none);  // from layer 28 on
    CHECK(with({{"use_sliding_window", true}, {"sliding_window", 16}, {"max_window_layers", 8}}) == none);
    CHECK(with({{"use_sliding_window", true}, {"sliding_window", 16}, {"max_window_layers", 5}}) ==
          Windows{0, 0, 0, 0, 0, 16, 16, 16});
    CHECK(with({{"use_sliding_window", true}, {"max_window_layers", 0}}) == Windows(8, 4096));
    io::Json types = io::Json::array();
    for (int i = 0; i < 8; ++i) types.push_back(i % 3 == 1 ? "sliding_attention" : "full_attention");
    CHECK(
        with({{"use_sliding_window", true}, {"sliding_window", 9}, {"max_window_layers", 0}, {"layer_types", types}}) ==
        Windows{0, 9, 0, 0, 9, 0, 0, 9});
    const std::string no_window = "config.json: layer 1 has sliding attention, but there is no sliding window";
    CHECK(said({{"sliding_window", 9}, {"layer_types", types}}) == no_window);
    CHECK(said({{"use_sliding_window", true}, {"sliding_window", nullptr}, {"layer_types", types}}) == no_window);
    CHECK(said({{"layer_types", {"full_attention", "full_attention"}}}) ==
          "config.json: \"layer_types\" has 2 entries for 8 layers");
    types[2] = "chunked_attention";
    CHECK(said({{"layer_types", types}}) ==
          "config.json: \"layer_types\" has \"chunked_attention\", which is not "
          "supported; expected full_attention or sliding_attention");
    CHECK(said({{"use_sliding_window", true}, {"sliding_window", 0}}) ==
          "config.json: \"sliding_window\" is 0; expected 1 to 1073741824");
    CHECK(said({{"sliding_window", 0}}) == "nothing was thrown");
  }
}

TEST_CASE("config: the sliding window of mistral counts for all layers, unless it is null") {
  const auto with = [](io::Json changes) {
    changes["num_key_value_heads"] = 2;
    return parsed(least("mistral"), changes);
  };
  const auto said = [&](const io::Json& changes) { return message_of([&] { with(changes); }); };
  CHECK(with(io::Json::object()).windows == std::vector<Index>(8, 4096));
  CHECK(with({{"sliding_window", nullptr}}).windows == std::vector<Index>(8, 0));
  CHECK(with({{"sliding_window", 7}, {"use_sliding_window", false}}).windows == std::vector<Index>(8, 7));
  CHECK(with({{"sliding_window", 7}, {"max_window_layers", 8}}).windows == std::vector<Index>(8, 7));
  CHECK(said({{"sliding_window", -1}}) == "config.json: \"sliding_window\" is -1; expected 1 to 1073741824");
  io::Json types(8, "sliding_attention");
  CHECK(with({{"sliding_window", 7}, {"layer_types", types}}).windows == std::vector<Index>(8, 7));
  types[3] = "full_attention";
  CHECK(said({{"sliding_window", 7}, {"layer_types", types}}) ==
        "config.json: \"layer_types\" has \"full_attention\" for layer 3, but \"sliding_window\" 7 counts for all "
        "layers of mistral");
  CHECK(model::narrowest_window(with({{"sliding_window", nullptr}})) == 0);
  model::Config mixed;
  mixed.windows = {0, 9, 4, 0, 5};
  CHECK(model::narrowest_window(mixed) == 4);
}

TEST_CASE("config: rotary settings are written where the file keeps them") {
  const auto written = [](io::Json json) {
    auto config = model::parse_config(json, "config.json");
    config.rope.theta = 123;
    config.rotates[2] = false;
    model::write_rotary(json, config, "config.json");
    const auto back = model::parse_config(json, "config.json");
    CHECK(back.rope.theta == 123);
    CHECK(back.rotates == config.rotates);
    return json;
  };
  auto old = least("smollm3"), fresh = old, both = old;
  old["rope_theta"] = 5e5;
  old["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2}};
  fresh["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 5e5}};
  both["rope_theta"] = 5e5;
  both["rope_parameters"] = {{"rope_type", "default"}};
  CHECK(written(old)["rope_theta"] == 123);
  CHECK_FALSE(written(old)["rope_scaling"].contains("rope_theta"));
  CHECK(written(fresh)["rope_parameters"]["rope_theta"] == 123);
  CHECK_FALSE(written(fresh).contains("rope_theta"));
  CHECK(written(both)["rope_theta"] == 123);
  CHECK(written(both)["rope_parameters"]["rope_theta"] == 123);
  CHECK(written(least("smollm3"))["rope_theta"] == 123);
  CHECK(written(fresh)["no_rope_layers"] == io::Json{1, 1, 0, 0, 1, 1, 1, 0});

  const auto same = fresh;  // unchanged settings change nothing
  model::write_rotary(fresh, model::parse_config(fresh, "config.json"), "config.json");
  CHECK(fresh == same);
}

TEST_CASE("config: to_json is read back as the same config") {
  for (const char* type : {"llama", "mistral", "qwen2", "qwen3", "smollm3"})
    for (const auto& scaling : {unscaled, linear_scaling, llama3_scaling, yarn_scaling}) {
      CAPTURE(type);
      const auto first = parsed(least(type), {{"num_key_value_heads", 2},
                                              {"head_dim", 24},
                                              {"rms_norm_eps", 1e-5},
                                              {"tie_word_embeddings", true},
                                              {"attention_bias", true},
                                              {"max_position_embeddings", 512},
                                              {"rope_theta", 5e5},
                                              {"rope_scaling", scaling},
                                              {"no_rope_layers", {1, 0, 1, 1, 1, 1, 1, 0}},
                                              {"eos_token_id", {5, 7}},
                                              {"bos_token_id", 3}});
      const auto json = model::to_json(first, "bfloat16", "x.gguf");
      const auto again = model::parse_config(json, "config.json");
      CHECK(again.dtype == "bfloat16");
      CHECK(json["architectures"][0].get<std::string>().ends_with("ForCausalLM"));
      CHECK((again.model_type == first.model_type && again.hidden_size == first.hidden_size &&
             again.intermediate_size == first.intermediate_size && again.num_hidden_layers == first.num_hidden_layers &&
             again.num_attention_heads == first.num_attention_heads &&
             again.num_key_value_heads == first.num_key_value_heads && again.head_dim == first.head_dim &&
             again.vocab_size == first.vocab_size && again.max_position_embeddings == first.max_position_embeddings));
      CHECK((again.rms_norm_eps == first.rms_norm_eps && again.tie_word_embeddings == first.tie_word_embeddings));
      CHECK((again.qkv_bias == first.qkv_bias && again.o_bias == first.o_bias && again.mlp_bias == first.mlp_bias &&
             again.qk_norm == first.qk_norm));
      CHECK((again.eos_token_ids == first.eos_token_ids && again.bos_token_id == first.bos_token_id));
      CHECK(again.rotates == first.rotates);
      CHECK(again.windows == first.windows);
      CHECK(again.rope.theta == first.rope.theta);
      CHECK(nn::inverse_frequencies(again.rope, 24) == nn::inverse_frequencies(first.rope, 24));
      CHECK(nn::rotary_magnitude(again.rope) == nn::rotary_magnitude(first.rope));
    }
}

TEST_CASE("config: windows are written as they are read, and refused where a type has no field for them") {
  const auto written = [](const char* type, const std::vector<Index>& windows) {
    auto config = parsed(least(type), {{"num_key_value_heads", 2}});
    config.windows = windows;
    return model::to_json(config, "float32", "x.gguf");
  };
  const std::vector<Index> none(8, 0), all(8, 31), some{0, 31, 0, 0, 31, 31, 0, 0}, two{0, 31, 0, 0, 30, 31, 0, 0};
  for (const char* type : {"qwen2", "qwen3"})
    for (const auto& windows : {none, all, some})
      CHECK(model::parse_config(written(type, windows), "config.json").windows == windows);
  CHECK_FALSE(written("qwen2", none).contains("sliding_window"));
  for (const char* type : {"mistral", "phi3"})
    for (const auto& windows : {none, all})
      CHECK(model::parse_config(written(type, windows), "config.json").windows == windows);
  CHECK(written("mistral", none).at("sliding_window").is_null());
  CHECK_FALSE(written("mistral", all).contains("layer_types"));
  const auto said = [&](const char* type, const std::vector<Index>& windows) {
    return message_of([&] { written(type, windows); });
  };
  CHECK(said("mistral", some) == "x.gguf: has windows that no config.json of a mistral model can express");
  CHECK(said("qwen3", two) == "x.gguf: has windows that no config.json of a qwen3 model can express");
}

TEST_CASE("config: biases that no config.json of the type can express are refused") {
  const auto message = [](const char* type, bool qkv, bool o, bool mlp) {
    auto config = parsed(least(type), {{"num_key_value_heads", 2}});
    config.qkv_bias = qkv;
    config.o_bias = o;
    config.mlp_bias = mlp;
    return message_of([&] { model::to_json(config, "float32", "x.gguf"); });
  };
  CHECK(
      message("llama", true, false, false) ==
      "x.gguf: has q, k, v biases, o none, mlp none, which no config.json of a llama model can express; it would mean "
      "q, k, v none, o none, mlp none");
  CHECK(message("llama", false, true, true) ==
        "x.gguf: has q, k, v none, o biases, mlp biases, which no config.json of a llama model can express; it would "
        "mean q, k, v biases, o biases, mlp biases");
  CHECK(message("qwen2", false, false, false) ==
        "x.gguf: has q, k, v none, o none, mlp none, which no config.json of a qwen2 model can express; it would mean "
        "q, k, v biases, o none, mlp none");
  CHECK(holds(message("qwen2", true, true, false), "has q, k, v biases, o biases, mlp none, which"));
  CHECK(holds(message("qwen3", true, false, false), "of a qwen3 model"));
  CHECK(
      message("qwen3", false, false, true) ==
      "x.gguf: has q, k, v none, o none, mlp biases, which no config.json of a qwen3 model can express; it would mean "
      "q, k, v none, o none, mlp none");
  CHECK(message("llama", true, true, true) == "nothing was thrown");
  CHECK(message("qwen3", true, true, false) == "nothing was thrown");
}

TEST_CASE("config: GGUF metadata of each architecture") {
  for (const char* family : {"llama", "qwen2", "qwen3"}) {
    CAPTURE(family);
    GgufFile file(family);
    const auto c = file.with([](GgufWriter& w) {
      w.add("tokenizer.ggml.bos_token_id", std::uint32_t{2});
      w.add("tokenizer.ggml.eot_token_id", std::uint32_t{4});
    });
    CHECK(c.model_type == family);
    CHECK((c.hidden_size == 16 && c.intermediate_size == 24 && c.num_hidden_layers == 2 && c.vocab_size == 61));
    CHECK((c.num_attention_heads == 4 && c.num_key_value_heads == 2 && c.head_dim == 4));
    CHECK(c.max_position_embeddings == 4096);
    CHECK(c.rms_norm_eps == 1e-6);
    CHECK(c.rope.theta == 10000);
    CHECK_FALSE(c.tie_word_embeddings);
    CHECK(c.qkv_bias == (std::string(family) == "qwen2"));
    CHECK_FALSE(c.o_bias);
    CHECK(c.qk_norm == (std::string(family) == "qwen3"));
    CHECK(c.eos_token_ids == std::vector<std::int32_t>{0, 4});
    CHECK(c.bos_token_id == 2);
    CHECK(c.rotates == std::vector<bool>{true, true});
    CHECK(c.windows == std::vector<Index>{0, 0});
    const auto again = model::parse_config(model::to_json(c, "float32", "x.gguf"), "config.json");
    CHECK((again.head_dim == 4 && again.num_key_value_heads == 2 && again.qkv_bias == c.qkv_bias));
    const auto twice = [](GgufWriter& w) { w.add("tokenizer.ggml.eot_token_id", std::uint32_t{0}); };
    CHECK(file.with(twice).eos_token_ids == std::vector<std::int32_t>{0});  // which is eos_token_id too
    file.shape.tied = true;
    CHECK(file.read().tie_word_embeddings);
  }
}

TEST_CASE("config: rope scaling in GGUF metadata") {
  GgufFile file("qwen2");
  const auto scaled = [&](const std::string& type, float factor, const std::string& more = "", float value = 0) {
    return file.with([&](GgufWriter& w) {
      if (!type.empty()) w.add("qwen2.rope.scaling.type", type);
      if (factor != 0) w.add("qwen2.rope.scaling.factor", factor);
      if (!more.empty()) w.add("qwen2.rope." + more, value);
    });
  };
  CHECK(scaled("none", 4).rope.scaling == Scaling::none);
  CHECK(scaled("linear", 4).rope.scaling == Scaling::linear);
  CHECK(scaled("linear", 4).rope.factor == 4);
  CHECK(scaled("", 4).rope.scaling == Scaling::linear);  // as llama.cpp has it
  CHECK(scaled("", 0, "scale_linear", 3).rope.factor == 3);
  const auto yarn = scaled("yarn", 4, "scaling.yarn_beta_fast", 16).rope;
  CHECK(yarn.scaling == Scaling::yarn);
  CHECK((yarn.beta_fast == 16 && yarn.beta_slow == 1 && yarn.original_max_position_embeddings == 4096));
  CHECK(nn::rotary_magnitude(yarn) == doctest::Approx(1 + 0.1 * std::log(4)));
  // GGUF's factor multiplies yarn's own, transformers' replaces it.
  CHECK(nn::rotary_magnitude(scaled("yarn", 4, "scaling.attn_factor", 2).rope) ==
        doctest::Approx(2 * (1 + 0.1 * std::log(4))));
  const auto refused = [&](const char* message, const auto&... arguments) {
    CHECK(holds(message_of([&] { scaled(arguments...); }), message));
  };
  refused("\"qwen2.rope.scaling.type\" is \"longrope\"", "longrope", 4.0f);
  refused("\"qwen2.rope.scaling.factor\" is missing", "yarn", 0.0f);
  refused("\"qwen2.rope.scaling.yarn_ext_factor\" is 0.5", "yarn", 4.0f, "scaling.yarn_ext_factor", 0.5f);
  refused("\"qwen2.rope.scaling.yarn_log_multiplier\" is 0.5", "yarn", 4.0f, "scaling.yarn_log_multiplier", 0.5f);
}

TEST_CASE("config: Llama 3.1's scaling is recognized in rope_freqs.weight, another is kept but not written") {
  GgufFile file("llama");
  file.shape.head_dim = 64;
  const auto with = [&](const std::vector<float>& factors) {
    return file.with([&](GgufWriter& w) {
      w.add_tensor("rope_freqs.weight", {factors.size()}, 0,
                   {reinterpret_cast<const char*>(factors.data()), factors.size() * sizeof(float)});
    });
  };
  const auto known = with(rope_freqs(64, 1e4, 32, 1, 4, 8192)).rope;
  CHECK(known.scaling == Scaling::llama3);
  CHECK((known.factor == 32 && known.original_max_position_embeddings == 8192));
  CHECK(known.frequency_factors.empty());

  auto odd = rope_freqs(64, 1e4, 32, 1, 4, 8192);
  odd[20] *= 1.01F;
  const auto config = with(odd);
  CHECK(config.rope.scaling == Scaling::none);
  CHECK(config.rope.frequency_factors == odd);
  CHECK(message_of([&] { model::to_json(config, "float32", "x.gguf"); }) ==
        "x.gguf: rope_freqs.weight holds factors that no config.json can express; expected those of Llama 3.1");
  CHECK(holds(message_of([&] { with({1, 2}); }), "rope_freqs.weight is F32 (2); expected F32 (32)"));
  odd[3] = 0;
  CHECK(holds(message_of([&] { with(odd); }), "rope_freqs.weight holds 0"));
}

TEST_CASE("config: GGUF metadata that are not supported, or missing, are named") {
  GgufFile file("qwen3");
  const auto refused = [&](const char* key, std::uint32_t value, const std::string& message) {
    CHECK(holds(message_of([&] {
                  GgufChanges changes;
                  changes.keep = [&](const std::string& name) { return name != key; };
                  changes.add = [&](GgufWriter& w) { w.add(key, value); };
                  file.read(changes);
                }),
                message));
  };
  refused("qwen3.expert_count", 8, "\"qwen3.expert_count\" is 8");
  refused("qwen3.attention.sliding_window", 512, "\"qwen3.attention.sliding_window\" is 512");
  refused("qwen3.attention.value_length", 8, "\"qwen3.attention.value_length\" is 8");
  refused("qwen3.rope.dimension_count", 2, "\"qwen3.rope.dimension_count\" is 2");
  for (const char* key : {"qwen3.block_count", "qwen3.embedding_length", "qwen3.attention.head_count",
                          "qwen3.attention.layer_norm_rms_epsilon", "token_embd.weight"}) {
    GgufChanges changes;
    changes.keep = [&](const std::string& name) { return name != key; };
    CAPTURE(key);
    CHECK(holds(message_of([&] { file.read(changes); }), key));
  }
  GgufWriter writer;
  writer.add("general.architecture", "gemma");
  io::write_file(file.folder / "y.gguf", std::string_view(writer.bytes()));
  CHECK(holds(message_of([&] { model::read_config(io::Gguf::open(file.folder / "y.gguf")); }),
              "\"general.architecture\" is \"gemma\", which is not supported; expected one of gemma2, gemma3, llama, "
              "phi3, qwen2, qwen3, smollm3"));
}

TEST_CASE("config: extents at their limits are taken, and the first beyond them is not") {
  const io::Json most = {{"hidden_size", 1 << 24},        {"intermediate_size", 1 << 24},
                         {"num_hidden_layers", 10'000},   {"num_attention_heads", 65'536},
                         {"num_key_value_heads", 65'536}, {"head_dim", 65'536},
                         {"vocab_size", 1 << 24}};
  const io::Json fewest = {{"hidden_size", 1}, {"intermediate_size", 1},   {"num_hidden_layers", 1},
                           {"vocab_size", 1},  {"num_attention_heads", 1}, {"num_key_value_heads", 1},
                           {"head_dim", 2}};
  for (const io::Json& changes : {most, fewest}) {
    const auto c = parsed(least("llama"), changes);
    CHECK(c.hidden_size == changes["hidden_size"]);
    CHECK(c.num_hidden_layers == changes["num_hidden_layers"]);
    CHECK(c.rotates.size() == static_cast<std::size_t>(c.num_hidden_layers));
    CHECK(c.num_attention_heads == changes["num_attention_heads"]);
    CHECK(c.head_dim == changes["head_dim"]);
    CHECK(c.vocab_size == changes["vocab_size"]);
  }
  const auto said = [](const io::Json& changes) { return message_of([&] { parsed(least("llama"), changes); }); };
  const std::string fine = "nothing was thrown";
  CHECK(said({{"rms_norm_eps", 0}}) == fine);
  CHECK(said({{"rms_norm_eps", 1}}) == "config.json: \"rms_norm_eps\" is 1");
  CHECK(said({{"rope_theta", 1}}) == "config.json: \"rope_theta\" is 1; expected more than 1");
  CHECK(said({{"rope_theta", 1.001}}) == fine);
  CHECK(said({{"max_position_embeddings", 0}}) == fine);
  CHECK(said({{"eos_token_id", 0}, {"bos_token_id", 0}}) == fine);
  CHECK(said({{"bos_token_id", -1}}) == "config.json: \"bos_token_id\" is -1; expected a token's id");
  CHECK(said({{"head_dim", 15}}) == "config.json: \"head_dim\" is 15; expected an even number");
  const auto scaled = [&](io::Json changes, const char* type = "llama3") {
    changes["rope_type"] = type;
    return said({{"rope_scaling", changes}});
  };
  CHECK(scaled({{"factor", 8}, {"original_max_position_embeddings", 1}}) == fine);
  for (const char* type : {"llama3", "yarn"}) {
    CHECK(scaled({{"factor", 8}, {"original_max_position_embeddings", 0.5}}, type) ==
          "config.json: the original context length of the rope scaling is 0.5; expected 1 or more, and below "
          "2^53");
    CHECK(scaled({{"factor", 8}, {"original_max_position_embeddings", 0x1p53}}, type) ==
          "config.json: the original context length of the rope scaling is 9007199254740992; expected 1 or more, and "
          "below 2^53");
    CHECK(scaled({{"factor", 8}, {"original_max_position_embeddings", 0}}, type) ==
          "config.json: \"original_max_position_embeddings\" is missing from the rope scaling");
  }
  CHECK(scaled({{"factor", 8}}, "linear") == fine);
  CHECK(scaled({{"factor", 8}, {"original_max_position_embeddings", 0.5}}, "linear") == fine);
  CHECK(scaled({{"factor", -2}}, "linear") == "config.json: the rope scaling \"factor\" is -2");
  CHECK(scaled({{"factor", 1e-300}}, "linear") ==
        "config.json: the rope settings give frequencies that are no finite numbers");
  CHECK(scaled({}, "dynamic") ==
        "config.json: \"rope_type\" is \"dynamic\", which is not supported; expected default, linear, llama3 or yarn");
  CHECK(said({{"partial_rotary_factor", 1}, {"num_experts", 0}, {"num_local_experts", 0}, {"attention_dropout", 0}}) ==
        fine);
  CHECK(said({{"partial_rotary_factor", 0.5}}) ==
        "config.json: \"partial_rotary_factor\" is 0.5, which is not supported; expected 1");
  CHECK(said({{"attention_dropout", "0"}}) ==
        "config.json: \"attention_dropout\" is \"0\", which is not supported; expected 0");
  CHECK(said({{"quantization_config", 4}}) == "config.json: \"quantization_config\" is 4, which is not supported");
  CHECK(said({{"model_type", "gemma"}}) ==
        "config.json: \"model_type\" is \"gemma\", which is not supported; expected one of gemma2, gemma3_text, llama, "
        "mistral, phi3, qwen2, qwen3, smollm3");
  CHECK(said({{"rope_parameters", 3}}) == "config.json: \"rope_parameters\" must be an object, found 3");
  CHECK(said({{"rope_scaling", {{"factor", 2}, {"partial_rotary_factor", 0.5}}}}) ==
        "config.json: rope_scaling: \"partial_rotary_factor\" is 0.5, which is not supported; expected 1");
}

TEST_CASE("config: what a rotary scaling leaves out has transformers' defaults") {
  const auto rope = [](io::Json scaling, const char* type) {
    scaling["rope_type"] = type;
    scaling["factor"] = 8;
    return parsed(least("llama"), {{"rope_scaling", scaling}, {"max_position_embeddings", 300}}).rope;
  };
  for (const char* type : {"linear", "llama3", "yarn"}) {
    CAPTURE(type);
    const auto r = rope(io::Json::object(), type);
    CHECK((r.factor == 8 && r.low_freq_factor == 1 && r.high_freq_factor == 4));
    CHECK((r.beta_fast == 32 && r.beta_slow == 1 && r.truncate));
    CHECK((r.attention_factor == 0 && r.mscale == 0 && r.mscale_all_dim == 0));
    CHECK(r.original_max_position_embeddings == 300);
  }
  const auto all = rope({{"low_freq_factor", 2},
                         {"high_freq_factor", 5},
                         {"beta_fast", 16},
                         {"beta_slow", 3},
                         {"attention_factor", 1.5},
                         {"mscale", 0.5},
                         {"mscale_all_dim", 0.25},
                         {"truncate", false},
                         {"original_max_position_embeddings", 100}},
                        "yarn");
  CHECK((all.low_freq_factor == 2 && all.high_freq_factor == 5 && all.beta_fast == 16 && all.beta_slow == 3));
  CHECK((all.attention_factor == 1.5 && all.mscale == 0.5 && all.mscale_all_dim == 0.25 && !all.truncate));
  CHECK(all.original_max_position_embeddings == 100);
  // The newer name of the kind counts, and one that is not named is none.
  CHECK(parsed(least("llama"), {{"rope_scaling", {{"rope_type", "default"}, {"type", "linear"}, {"factor", 2}}}})
            .rope.scaling == Scaling::none);
  CHECK(parsed(least("llama"), {{"rope_scaling", {{"factor", 2}}}}).rope.scaling == Scaling::none);
  nn::RopeConfig plain;
  CHECK((plain.theta == 10000 && plain.factor == 1 && plain.low_freq_factor == 1 && plain.high_freq_factor == 4));
  CHECK((plain.attention_factor == 0 && plain.mscale == 0 && plain.mscale_all_dim == 0));
  CHECK(plain.scaling == Scaling::none);
}

TEST_CASE("config: a length that scaling stretches beyond what a number of tokens holds is cut there") {
  model::Config config;
  CHECK(model::longest_sequence(config) == 0);
  config.max_position_embeddings = 512;
  config.rope.factor = 4;
  config.rope.original_max_position_embeddings = 1024;
  CHECK(model::longest_sequence(config) == 512);  // without scaling these say nothing
  config.rope.scaling = Scaling::linear;
  CHECK(model::longest_sequence(config) == 4096);
  config.rope.factor = 1e300;
  CHECK(model::longest_sequence(config) == Index{1} << 53);
  config.rope.factor = -1;
  CHECK(model::longest_sequence(config) == 512);
}

TEST_CASE("config: layers of no_rope_layers, of its interval, and of types and windows that are off") {
  const auto rotates = [](const char* type, const io::Json& changes) { return parsed(least(type), changes).rotates; };
  const std::vector<bool> all(8, true);
  CHECK(rotates("llama", {{"no_rope_layers", {1, 0, 2, 1, 1, 1, 1, 1, 0, 0}}}) ==
        std::vector<bool>{true, false, true, true, true, true, true, true});
  CHECK(rotates("llama", {{"no_rope_layers", io::Json::array()}}) == all);
  CHECK(rotates("smollm3", {{"no_rope_layers", io::Json::array()}}) == all);
  CHECK(rotates("llama", {{"no_rope_layer_interval", 2}}) == all);
  CHECK(rotates("smollm3", {{"no_rope_layer_interval", 1}}) == std::vector<bool>(8, false));
  CHECK(rotates("smollm3", {{"no_rope_layer_interval", 9}}) == all);
  const auto said = [](const io::Json& changes) { return message_of([&] { parsed(least("smollm3"), changes); }); };
  CHECK(said({{"no_rope_layer_interval", 0}}) ==
        "config.json: \"no_rope_layer_interval\" is 0; expected 1 to 16777216");
  CHECK(said({{"no_rope_layers", {1, 1, 1, 1, 1, 1, 1}}}) ==
        "config.json: \"no_rope_layers\" has 7 entries for 8 layers");
  const io::Json full = io::Json::array({"full_attention", "full_attention"});
  CHECK(said({{"layer_types", full}, {"use_sliding_window", true}, {"sliding_window", 4}}) == "nothing was thrown");
  CHECK(said({{"layer_types", {"full_attention", "chunked"}}}) ==
        "config.json: \"layer_types\" has \"chunked\", which is not supported; expected full_attention");
  CHECK(said({{"use_sliding_window", true}, {"sliding_window", 16}, {"max_window_layers", 7}}) ==
        "config.json: \"use_sliding_window\" is true with \"sliding_window\" 16 from layer 7, which is not supported");
  CHECK(said({{"use_sliding_window", true}, {"sliding_window", 16}, {"max_window_layers", 8}}) == "nothing was thrown");
  CHECK(said({{"use_sliding_window", true}}) ==
        "config.json: \"use_sliding_window\" is true with \"sliding_window\" left out from layer 0, which is not "
        "supported");
}

TEST_CASE("config: the newer name of the dtype counts, and a file without either has none") {
  CHECK(parsed(least("llama"), {{"dtype", "bfloat16"}, {"torch_dtype", "float16"}}).dtype == "bfloat16");
  CHECK(parsed(least("llama")).dtype.empty());
  CHECK_FALSE(parsed(least("qwen2"), {{"num_key_value_heads", 2}}).bos_token_id);
  const model::Config plain;
  CHECK((plain.rms_norm_eps == 1e-6 && plain.initializer_range == 0.02));
}

TEST_CASE("config: what is written for each type, field by field") {
  const auto written = [](const char* type, const io::Json& changes) {
    io::Json all = {{"num_key_value_heads", 2}, {"head_dim", 24}, {"max_position_embeddings", 512}};
    all.update(changes);
    return io::to_text(model::to_json(parsed(least(type), all), "float16", "x.gguf"), -1);
  };
  const auto begin = [](const char* architecture, const char* type) {
    return concat("{\"architectures\":[\"", architecture, "ForCausalLM\"],\"model_type\":\"", type,
                  "\",\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":8,\"num_attention_heads\":4,"
                  "\"num_key_value_heads\":2,\"head_dim\":24,\"vocab_size\":99,");
  };
  constexpr const char* end = "\"dtype\":\"float16\",\"torch_dtype\":\"float16\"}";
  CHECK(written("llama", {{"rope_scaling", llama3_scaling}, {"attention_bias", true}, {"rope_theta", 5000.5}}) ==
        concat(
            begin("Llama", "llama"),
            "\"max_position_embeddings\":512,\"rms_norm_eps\":1e-06,\"hidden_act\":\"silu\","
            "\"tie_word_embeddings\":false,\"attention_bias\":true,\"mlp_bias\":false,\"rope_theta\":5000.5,"
            "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":2.0,"
            "\"high_freq_factor\":5.0,\"original_max_position_embeddings\":100},\"eos_token_id\":2,\"bos_token_id\":1,",
            end));
  CHECK(written("mistral", {{"attention_bias", true}, {"sliding_window", nullptr}}) ==
        concat(begin("Mistral", "mistral"),
               "\"max_position_embeddings\":512,\"rms_norm_eps\":1e-06,\"hidden_act\":\"silu\","
               "\"tie_word_embeddings\":false,\"sliding_window\":null,\"rope_theta\":10000.0,\"eos_token_id\":2,"
               "\"bos_token_id\":1,",
               end));
  CHECK(written("qwen2", {{"rope_scaling", yarn_scaling}, {"eos_token_id", {7}}, {"tie_word_embeddings", true}}) ==
        concat(begin("Qwen2", "qwen2"),
               "\"max_position_embeddings\":512,\"rms_norm_eps\":1e-06,\"hidden_act\":\"silu\","
               "\"tie_word_embeddings\":true,\"rope_theta\":10000.0,"
               "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0,\"beta_fast\":16.0,\"beta_slow\":2.0,"
               "\"original_max_position_embeddings\":100,\"attention_factor\":1.25,\"mscale\":0.5,"
               "\"mscale_all_dim\":0.75,\"truncate\":false},\"eos_token_id\":7,",
               end));
  CHECK(written("qwen3", {{"rope_scaling", linear_scaling},
                          {"max_position_embeddings", 0},
                          {"eos_token_id", {7, 5}},
                          {"bos_token_id", 0}}) ==
        concat(begin("Qwen3", "qwen3"),
               "\"rms_norm_eps\":1e-06,\"hidden_act\":\"silu\",\"tie_word_embeddings\":false,\"attention_bias\":false,"
               "\"rope_theta\":10000.0,\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":2.5},"
               "\"eos_token_id\":[7,5],\"bos_token_id\":0,",
               end));
  io::Json yarn = yarn_scaling;
  for (const char* field : {"attention_factor", "mscale", "mscale_all_dim", "truncate"}) yarn.erase(field);
  CHECK(written("smollm3", {{"rope_scaling", yarn}, {"mlp_bias", true}, {"no_rope_layer_interval", 9}}) ==
        concat(begin("SmolLM3", "smollm3"),
               "\"max_position_embeddings\":512,\"rms_norm_eps\":1e-06,\"hidden_act\":\"silu\","
               "\"tie_word_embeddings\":true,\"attention_bias\":false,\"mlp_bias\":true,\"rope_theta\":2000000.0,"
               "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0,\"beta_fast\":16.0,\"beta_slow\":2.0,"
               "\"original_max_position_embeddings\":100},\"no_rope_layers\":[1,1,1,1,1,1,1,1],"
               "\"eos_token_id\":128001,\"bos_token_id\":null,\"pad_token_id\":null,",  // beyond the vocabulary
               end));
  CHECK(model::unwritable_no_rope_layers(parsed(least("smollm3"))).empty());
  CHECK(model::unwritable_no_rope_layers(parsed(least("llama"), {{"no_rope_layers", {0, 1, 1, 1, 1, 1, 0, 1}}})) ==
        std::vector<Index>{0, 6});
}

TEST_CASE("config: what GGUF metadata leave out has llama.cpp's defaults, and what is off is taken") {
  GgufFile file("qwen2");
  GgufChanges changes;
  changes.keep = [](const std::string& name) {
    for (const char* key : {"attention.head_count_kv", "attention.key_length", "context_length", "rope.freq_base"})
      if (name == concat("qwen2.", key)) return false;
    return true;
  };
  file.shape.kv_heads = 4;  // as many as heads
  changes.add = [](GgufWriter& w) {
    for (const char* off : {"expert_count", "attention.sliding_window"}) w.add(concat("qwen2.", off), std::uint32_t{0});
    w.add("qwen2.rope.dimension_count", std::uint32_t{4});
  };
  const auto c = file.read(changes);
  CHECK((c.num_key_value_heads == 4 && c.head_dim == 4 && c.max_position_embeddings == 0));
  CHECK(c.rope.theta == 10000);
  CHECK_FALSE(c.bos_token_id);
  const auto with = [&](const std::function<void(GgufWriter&)>& add) {
    return message_of([&] {
      GgufChanges more = changes;
      more.add = add;
      file.read(more);
    });
  };
  const std::string where = (file.folder / "x.gguf").native();
  const auto count = [&](const char* key, std::uint32_t value) {
    GgufChanges other;
    other.keep = [=](const std::string& name) { return name != concat("qwen2.", key); };
    other.add = [=](GgufWriter& w) { w.add(concat("qwen2.", key), value); };
    return message_of([&] { file.read(other); });
  };
  CHECK(count("block_count", 10'001) == where + ": \"qwen2.block_count\" is 10001; expected 1 to 10000");
  CHECK(count("attention.head_count", 0) == where + ": \"qwen2.attention.head_count\" is 0; expected 1 to 65536");
  CHECK(count("expert_count", 1) == where + ": \"qwen2.expert_count\" is 1, which is not supported; expected 0");
  const auto yarn = [&](const char* key, float value) {
    return with([=](GgufWriter& w) {
      w.add("qwen2.rope.scaling.type", "yarn");
      w.add("qwen2.rope.scaling.factor", 4.0f);
      w.add(concat("qwen2.rope.scaling.", key), value);
    });
  };
  CHECK(yarn("yarn_ext_factor", 0.5f) ==
        where + ": \"qwen2.rope.scaling.yarn_ext_factor\" is 0.5, which is not supported; expected 1");
  CHECK(yarn("yarn_attn_factor", 0.5f) ==
        where + ": \"qwen2.rope.scaling.yarn_attn_factor\" is 0.5, which is not supported; expected 1");
  CHECK(yarn("yarn_log_multiplier", 1.0f) ==
        where + ": \"qwen2.rope.scaling.yarn_log_multiplier\" is 1, which is not supported; expected 0");
  CHECK(yarn("yarn_ext_factor", 1.0f) == where + ": \"qwen2.rope.scaling.original_context_length\" is missing");
  CHECK(yarn("original_context_length", 64.0f) == "nothing was thrown");
  // A type that says none keeps what else is said from being read, but not from being checked.
  CHECK(with([](GgufWriter& w) {
          w.add("qwen2.rope.scaling.type", "none");
          w.add("qwen2.rope.scaling.yarn_attn_factor", 2.0f);
        }) == where + ": \"qwen2.rope.scaling.yarn_attn_factor\" is 2, which is not supported; expected 1");
  CHECK(with([](GgufWriter& w) { w.add("qwen2.rope.scaling.type", "longrope"); }) ==
        where + ": \"qwen2.rope.scaling.type\" is \"longrope\", which is not supported; expected none, linear or yarn");
  CHECK(with([](GgufWriter& w) { w.add("qwen2.rope.scaling.type", "linear"); }) ==
        where + ": \"qwen2.rope.scaling.factor\" is missing");
}

TEST_CASE("config: GGUF's yarn has its own original length and both ends of its ramp") {
  GgufFile file("qwen3");
  const auto rope = [&](float attention) {
    return file
        .with([=](GgufWriter& w) {
          w.add("qwen3.rope.scaling.type", "yarn");
          w.add("qwen3.rope.scaling.factor", 4.0f);
          w.add("qwen3.rope.scaling.original_context_length", std::uint32_t{64});
          w.add("qwen3.rope.scaling.yarn_beta_fast", 16.0f);
          w.add("qwen3.rope.scaling.yarn_beta_slow", 2.0f);
          if (attention != 0) w.add("qwen3.rope.scaling.attn_factor", attention);
        })
        .rope;
  };
  const auto plain = rope(0);
  CHECK((plain.factor == 4 && plain.original_max_position_embeddings == 64));
  CHECK((plain.beta_fast == 16 && plain.beta_slow == 2 && plain.attention_factor == 0));
  CHECK(rope(1).attention_factor == 0);
  CHECK(rope(2).attention_factor == doctest::Approx(2 * (1 + 0.1 * std::log(4))));
  // A factor beside the older name of it counts.
  CHECK(file.with([](GgufWriter& w) {
              w.add("qwen3.rope.scaling.factor", 4.0f);
              w.add("qwen3.rope.scale_linear", 3.0f);
            })
            .rope.factor == 4);
  CHECK(file.with([](GgufWriter& w) { w.add("qwen3.rope.scaling.factor", 0.0f); }).rope.scaling == Scaling::none);
}

TEST_CASE("config: rope_freqs.weight of another type, or with numbers that are none, is refused") {
  GgufFile file("llama");
  file.shape.head_dim = 8;
  const auto said = [&](std::uint32_t type, const std::string& bytes, std::uint64_t count = 4) {
    return message_of(
        [&] { file.with([&](GgufWriter& w) { w.add_tensor("rope_freqs.weight", {count}, type, bytes); }); });
  };
  const std::string where = (file.folder / "x.gguf").native() + ": rope_freqs.weight ";
  CHECK(said(1, std::string(8, '\0')) == where + "is F16 (4); expected F32 (4)");
  CHECK(said(0, std::string(12, '\0'), 3) == where + "is F32 (3); expected F32 (4)");
  const auto of = [](const std::vector<float>& factors) {
    return std::string(reinterpret_cast<const char*>(factors.data()), factors.size() * sizeof(float));
  };
  CHECK(said(0, of({1, 1, 1, INFINITY})) == where + "holds inf; expected positive numbers");
  CHECK(said(0, of({1, -1, 1, 1})) == where + "holds -1; expected positive numbers");
  CHECK(said(0, of({1, 1, 1, 1e-45f})) ==
        (file.folder / "x.gguf").native() + ": the rope settings give frequencies that are no finite numbers");
  CHECK(said(0, of({1, 2, 3, 4})) == "nothing was thrown");
}

TEST_CASE("config: GGUF's rotary base, epsilon, biases and ends of a turn are those that the file has") {
  GgufFile file("llama");
  file.shape.more = {{"attention_bias", true}, {"mlp_bias", true}};
  const auto without = [&](std::string_view left_out) {
    GgufChanges changes;
    changes.keep = [=](const std::string& name) {
      return name != left_out && name != "llama.rope.freq_base" && name != "llama.attention.layer_norm_rms_epsilon";
    };
    changes.add = [](GgufWriter& w) {
      w.add("llama.rope.freq_base", 12345.6f);
      w.add("llama.attention.layer_norm_rms_epsilon", 1e-5f);
      w.add("tokenizer.ggml.eot_token_id", std::uint32_t{4});
      w.add("tokenizer.ggml.eom_token_id", std::uint32_t{7});
    };
    return file.read(changes);
  };
  // Decimal numbers, as config.json had them.
  const auto c = without("");
  CHECK(c.rope.theta == 12345.6);
  CHECK(c.rms_norm_eps == 1e-5);
  CHECK(c.eos_token_ids == std::vector<std::int32_t>{0, 4, 7});
  const auto biases = [](const model::Config& config) {
    return std::vector<bool>{config.qkv_bias, config.o_bias, config.mlp_bias};
  };
  CHECK(biases(c) == std::vector<bool>{true, true, true});
  CHECK(biases(without("blk.0.attn_q.bias")) == std::vector<bool>{false, true, true});
  CHECK(biases(without("blk.0.attn_output.bias")) == std::vector<bool>{true, false, true});
  CHECK(biases(without("blk.0.ffn_gate.bias")) == std::vector<bool>{true, true, false});
  CHECK(message_of([&] { without("token_embd.weight"); }) ==
        (file.folder / "x.gguf").native() + ": the tensor token_embd.weight is missing");
}

TEST_CASE("config: a GGUF file that holds an adapter is told") {
  GgufFile file("llama");
  const auto of_type = [&](const char* type) {
    GgufChanges changes;
    changes.keep = [](const std::string& name) { return name != "general.type"; };
    changes.add = [=](GgufWriter& w) { w.add("general.type", std::string(type)); };
    return message_of([&] { (void)file.read(changes); });
  };
  CHECK(of_type("model") == message_of([] {}));
  CHECK(of_type("adapter") ==
        (file.folder / "x.gguf").native() +
            ": an adapter as llama.cpp loads it beside its model; expected a whole model: export without adapter_only "
            "writes one, and here adapter_name_or_path takes the adapter's folder");
}

}  // namespace config_test
