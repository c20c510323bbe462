// gemma2 and gemma3_text: what of config.json and of GGUF files is theirs, both ways, and what is refused. What they
// compute is in golden_test.cpp.

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "lora/instantiate.hpp"
#include "lora/model/description/config_gguf.hpp"
#include "lora/model/description/config_json.hpp"
#include "lora/model/export/export_gguf.hpp"
#include "lora/model/export/merge.hpp"
#include "support/message_of.hpp"
#include "support/random_gguf.hpp"
#include "support/temp_folder.hpp"

namespace gemma_test {

namespace {

using namespace lora;
using namespace lora::test;
using D = cpu::Device;

/// Without anything that has a default.
io::Json least(const std::string& type) {
  return {{"model_type", type},     {"hidden_size", 64},        {"intermediate_size", 96},
          {"num_hidden_layers", 7}, {"num_attention_heads", 4}, {"vocab_size", 99}};
}
model::Config parsed(io::Json json, const io::Json& changes = io::Json::object()) {
  json.update(changes);
  return model::parse_config(json, "config.json");
}

/// A small one whose layers are as llama.cpp expects them.
RandomModel small(const std::string& type) {
  RandomModel shape;
  shape.family = type;
  shape.layers = type == "gemma2" ? 3 : 7;
  shape.head_dim = 6;
  shape.tied = true;
  shape.more = {{"sliding_window", 3}, {"query_pre_attn_scalar", 6}, {"rope_theta", 300.0}};
  if (type == "gemma2") {
    shape.more.update({{"attn_logit_softcapping", 0.5}, {"final_logit_softcapping", 2.5}});
  } else {
    shape.more.update({{"rope_local_base_freq", 50.0}, {"rope_scaling", {{"rope_type", "linear"}, {"factor", 2}}}});
  }
  return shape;
}

std::vector<float> logits_of(const std::filesystem::path& path) {
  D dev(1);
  model::Decoder<D, float> decoder(dev, model::Source::open(path));
  nn::Batch batch;
  for (std::int32_t i = 0; i < 9; ++i) {
    batch.tokens.push_back(1 + 5 * i);
    batch.positions.push_back(i);
    batch.sequence_index.push_back(0);
  }
  batch.segments = {{0, 9}};
  std::vector<std::int32_t> rows(9);
  std::iota(rows.begin(), rows.end(), 0);
  return decoder.logits(dev, nn::Pass<D, float>(dev, batch), rows);
}

void export_gguf(const std::filesystem::path& folder, const std::filesystem::path& file) {
  const auto source = model::Source::open(folder);
  D dev(1);
  model::Decoder<D, float> decoder(dev, source);
  model::check_gguf(source.config(), folder.string());
  io::GgufWriter writer(file, model::gguf_metadata(source.config(), DType::f32, "m"),
                        model::gguf_tensors(source.config(), DType::f32));
  model::write_gguf_tensors(dev, decoder, DType::f32, writer);
  writer.commit();
}

}  // namespace

TEST_CASE("gemma: what a config.json leaves out is as in transformers") {
  const std::vector<Index> every_second{4096, 0, 4096, 0, 4096, 0, 4096};
  const std::vector<Index> every_sixth{4096, 4096, 4096, 4096, 4096, 0, 4096};
  for (const bool second : {true, false}) {
    const auto c = parsed(least(second ? "gemma2" : "gemma3_text"));
    CHECK((c.num_key_value_heads == 4 && c.head_dim == 256 && c.rms_norm_eps == 1e-6));
    CHECK((c.tie_word_embeddings && !c.qkv_bias && !c.o_bias && !c.mlp_bias));
    CHECK(c.qk_norm == !second);
    CHECK((c.norm_offset == 1 && c.post_norms && c.gate == kernel::Gate::gelu_tanh));
    CHECK((c.embedding_scale == 8 && c.query_scalar == 256));
    CHECK(c.attention_cap == (second ? 50 : 0));
    CHECK(c.logit_cap == (second ? 30 : 0));
    CHECK(c.rope.theta == (second ? 1e4 : 1e6));
    CHECK(c.window_rope.has_value() == !second);
    if (!second) CHECK(c.window_rope->theta == 1e4);
    CHECK(c.windows == (second ? every_second : every_sixth));
    CHECK(c.eos_token_ids == std::vector<std::int32_t>{1});
    CHECK((c.bos_token_id == 2 && c.pad_token_id == 0));
  }
  const auto plain = parsed(least("llama"));
  CHECK((plain.norm_offset == 0 && !plain.post_norms && plain.gate == kernel::Gate::silu));
  CHECK((plain.embedding_scale == 1 && plain.query_scalar == 0 && plain.attention_cap == 0 && plain.logit_cap == 0));
  CHECK_FALSE(plain.window_rope);
}

TEST_CASE("gemma: fields that are there count, null ones where they may") {
  const io::Json types{"full_attention", "sliding_attention", "full_attention", "full_attention",
                       "full_attention", "full_attention",    "full_attention"};
  for (const char* type : {"gemma2", "gemma3_text"}) {
    CAPTURE(type);
    const bool second = std::string(type) == "gemma2";
    const auto c = parsed(least(type), {{"query_pre_attn_scalar", 100},
                                        {"attn_logit_softcapping", second ? io::Json(5) : io::Json()},
                                        {"final_logit_softcapping", 7.5},
                                        {"sliding_window", 9},
                                        {"layer_types", types},
                                        {"attention_bias", true},
                                        {"tie_word_embeddings", false},
                                        {"eos_token_id", {3, 4}},
                                        {"bos_token_id", nullptr},
                                        {"pad_token_id", 6},
                                        {"hidden_act", "gelu"},  // which transformers does not read
                                        {"hidden_activation", "gelu_pytorch_tanh"},
                                        {"use_bidirectional_attention", false}});
    CHECK((c.query_scalar == 100 && c.attention_cap == (second ? 5 : 0) && c.logit_cap == 7.5));
    CHECK(c.windows == std::vector<Index>{0, 9, 0, 0, 0, 0, 0});
    CHECK((c.qkv_bias && c.o_bias && !c.tie_word_embeddings));
    CHECK(c.eos_token_ids == std::vector<std::int32_t>{3, 4});
    CHECK((!c.bos_token_id && c.pad_token_id == 6));
    const auto off = parsed(least(type), {{"attn_logit_softcapping", nullptr}, {"final_logit_softcapping", nullptr}});
    CHECK((off.attention_cap == 0 && off.logit_cap == 0));
  }
  CHECK(parsed(least("gemma3_text"), {{"sliding_window_pattern", 2}, {"sliding_window", 5}}).windows ==
        std::vector<Index>{5, 0, 5, 0, 5, 0, 5});
}

TEST_CASE("gemma: rotary settings of both kinds of layers, in the new spelling and the old one") {
  const io::Json linear = {{"rope_type", "linear"}, {"factor", 8}};
  const auto old =
      parsed(least("gemma3_text"), {{"rope_theta", 5e5}, {"rope_local_base_freq", 700}, {"rope_scaling", linear}});
  const auto fresh =
      parsed(least("gemma3_text"), {{"rope_parameters",
                                     {{"full_attention", {{"rope_type", "linear"}, {"factor", 8}, {"rope_theta", 5e5}}},
                                      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 700}}}}}});
  for (const auto& c : {old, fresh}) {
    CHECK((c.rope.theta == 5e5 && c.rope.scaling == nn::RopeConfig::Scaling::linear && c.rope.factor == 8));
    CHECK((c.window_rope->theta == 700 && c.window_rope->scaling == nn::RopeConfig::Scaling::none));
  }
  const auto bare =
      parsed(least("gemma3_text"), {{"rope_parameters", {{"full_attention", {{"rope_type", "default"}}}}}});
  CHECK((bare.rope.theta == 1e6 && bare.window_rope->theta == 1e4));
  // rope_scaling beside them changes the scaling, and leaves theta.
  const auto both = parsed(least("gemma3_text"), {{"rope_scaling", linear},
                                                  {"rope_parameters", {{"full_attention", {{"rope_theta", 5e5}}}}}});
  CHECK((both.rope.theta == 5e5 && both.rope.factor == 8));
  const io::Json flat{{"rope_parameters", {{"rope_type", "linear"}, {"factor", 8}, {"rope_theta", 5e5}}}};
  CHECK(message_of<FormatError>([&] { parsed(least("gemma3_text"), flat); }) ==
        "config.json: \"rope_parameters\" has \"rope_type\", which is not supported; expected \"full_attention\" and "
        "\"sliding_attention\", with settings for these layers each");

  // A key's theta is of the layers without a window, and written where the file has theirs.
  io::Json json = least("gemma3_text");
  json["rope_parameters"] = {{"full_attention", {{"rope_type", "default"}, {"rope_theta", 5e5}}},
                             {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 700}}}};
  auto config = model::parse_config(json, "config.json");
  config.rope.theta = 123;
  model::write_rotary(json, config, "config.json");
  CHECK(json["rope_parameters"]["full_attention"]["rope_theta"] == 123);
  CHECK(json["rope_parameters"]["sliding_attention"]["rope_theta"] == 700);
  CHECK_FALSE(json.contains("rope_theta"));
}

TEST_CASE("gemma: a config.json that asks for what is not computed is refused by name") {
  const auto said = [](const char* type, const io::Json& changes) {
    return message_of<FormatError>([&] { parsed(least(type), changes); });
  };
  for (const char* type : {"gemma2", "gemma3_text"}) {
    CHECK(said(type, {{"hidden_activation", "gelu"}}) ==
          "config.json: \"hidden_activation\" is \"gelu\", which is not supported; expected \"gelu_pytorch_tanh\"");
    CHECK(said(type, {{"use_bidirectional_attention", true}}) ==
          "config.json: \"use_bidirectional_attention\" is true, which is not supported; expected false");
    CHECK(said(type, {{"query_pre_attn_scalar", 0}}) ==
          "config.json: \"query_pre_attn_scalar\" is 0; expected more than 0");
    CHECK(said(type, {{"attn_logit_softcapping", -1}}) ==
          "config.json: \"attn_logit_softcapping\" is -1; expected more than 0, or null");
    CHECK(said(type, {{"final_logit_softcapping", 0}}) ==
          "config.json: \"final_logit_softcapping\" is 0; expected more than 0, or null");
    CHECK(holds(said(type, {{"sliding_window", nullptr}}), "there is no sliding window"));
  }
  CHECK(said("gemma3_text", {{"attn_logit_softcapping", 5}}) ==
        "config.json: \"attn_logit_softcapping\" is 5, which a gemma3_text has no place for; expected null");
  CHECK(said("gemma3_text", {{"sliding_window_pattern", 0}}) ==
        "config.json: \"sliding_window_pattern\" is 0; expected 1 to 16777216");
  CHECK(said("gemma3", io::Json::object()) ==
        "config.json: \"model_type\" is \"gemma3\", a model of texts and images, which is not supported; expected its "
        "text model alone, whose \"model_type\" is \"gemma3_text\"");
  CHECK(holds(said("gemma2", {{"rope_parameters", {{"full_attention", {{"rope_theta", 5.0}}}}}}),
              "has settings for \"full_attention\" alone, which is not supported"));
}

TEST_CASE("gemma: to_json is read back as the same config") {
  for (const char* type : {"gemma2", "gemma3_text"}) {
    CAPTURE(type);
    const bool second = std::string(type) == "gemma2";
    const auto first = parsed(least(type), {{"query_pre_attn_scalar", 99.5},
                                            {"sliding_window", 33},
                                            {"layer_types",
                                             {"full_attention", "sliding_attention", "sliding_attention",
                                              "full_attention", "full_attention", "full_attention", "full_attention"}},
                                            {"attn_logit_softcapping", second ? io::Json(2) : io::Json()},
                                            {"final_logit_softcapping", nullptr},
                                            {"rope_theta", 777},
                                            {"rope_local_base_freq", 55},
                                            {"attention_bias", true},
                                            {"max_position_embeddings", 512}});
    const auto json = model::to_json(first, "bfloat16", "x.gguf");
    CHECK(json["architectures"][0] == (second ? "Gemma2ForCausalLM" : "Gemma3ForCausalLM"));
    CHECK_FALSE(json.contains("hidden_act"));
    const auto again = model::parse_config(json, "config.json");
    CHECK((again.query_scalar == 99.5 && again.attention_cap == (second ? 2 : 0) && again.logit_cap == 0));
    CHECK((again.windows == first.windows && again.rope.theta == 777 && again.qkv_bias && again.o_bias));
    if (first.window_rope) CHECK(again.window_rope->theta == 55);
    CHECK((again.norm_offset == 1 && again.head_dim == first.head_dim && again.qk_norm == first.qk_norm));
  }
  auto config = parsed(least("gemma3_text"));
  config.window_rope->scaling = nn::RopeConfig::Scaling::linear;
  CHECK(message_of<FormatError>([&] { model::to_json(config, "float32", "x.gguf"); }) ==
        "x.gguf: layers with a window have rotary settings that no config.json of a gemma3_text model can express");
}

TEST_CASE("gemma: a GGUF file as a converter writes it computes what the folder does, bit by bit") {
  const TempFolder temp;
  for (const char* type : {"gemma2", "gemma3_text"}) {
    CAPTURE(type);
    const RandomModel shape = small(type);
    write_random_model(temp / type, shape);
    const auto file = temp / concat(type, ".gguf");
    GgufChanges changes;
    changes.keep = [](const std::string& name) { return !name.ends_with("rope.freq_base"); };
    changes.add = [&](GgufWriter& writer) {
      const std::string arch = gguf_architecture(type);
      writer.add(arch + ".rope.freq_base", 300.0f);
      writer.add(arch + ".attention.sliding_window", std::uint32_t{3});
      if (std::string(type) == "gemma2") {
        writer.add(arch + ".attn_logit_softcapping", 0.5f);
        writer.add(arch + ".final_logit_softcapping", 2.5f);
      } else {
        writer.add(arch + ".rope.freq_base_swa", 50.0f);
        writer.add(arch + ".rope.scaling.type", std::string("linear"));
        writer.add(arch + ".rope.scaling.factor", 2.0f);
      }
    };
    write_gguf(file, shape, random_tensors(shape), DType::f32, changes);
    const auto config = model::Source::open(file).config();
    CHECK(config.model_type == type);
    CHECK((config.norm_offset == 1 && config.post_norms));
    CHECK(logits_of(file) == logits_of(temp / type));
    export_gguf(temp / type, temp / "exported.gguf");
    CHECK(logits_of(temp / "exported.gguf") == logits_of(file));
  }
}

TEST_CASE("gemma: what a GGUF file leaves out has llama.cpp's defaults, and what it asks for beside is refused") {
  const TempFolder temp;
  for (const char* type : {"gemma2", "gemma3_text"}) {
    const std::string arch = gguf_architecture(type);
    const RandomModel shape = small(type);
    const auto read = [&](const std::function<void(GgufWriter&)>& add) {
      GgufChanges changes;
      changes.add = add;
      write_gguf(temp / "x.gguf", shape, random_tensors(shape), DType::f32, changes);
      return model::read_config(io::Gguf::open(temp / "x.gguf"));
    };
    const auto with_window = [&](GgufWriter& writer) {
      writer.add(arch + ".attention.sliding_window", std::uint32_t{3});
    };
    const auto c = read(with_window);
    const bool second = arch == "gemma2";
    CHECK((c.attention_cap == (second ? 50 : 0) && c.logit_cap == (second ? 30 : 0)));
    CHECK((c.query_scalar == 6 && c.embedding_scale == 4));
    CHECK(c.windows == (second ? std::vector<Index>{3, 0, 3} : std::vector<Index>{3, 3, 3, 3, 3, 0, 3}));
    if (!second) CHECK(c.window_rope->theta == 1e4);
    const auto said = [&](const std::function<void(GgufWriter&)>& add) {
      return message_of<FormatError>([&] { read(add); });
    };
    if (second) {
      CHECK(read([](GgufWriter&) {}).windows == std::vector<Index>{4096, 0, 4096});
    } else {
      CHECK(holds(said([](GgufWriter&) {}), "the key gemma3.attention.sliding_window is missing"));
    }
    CHECK(holds(said([&](GgufWriter& writer) { writer.add(arch + ".attention.sliding_window", std::uint32_t{0}); }),
                concat("\"", arch, ".attention.sliding_window\" is 0")));
    CHECK(holds(said([&](GgufWriter& writer) {
                  with_window(writer);
                  writer.add(arch + ".attention.sliding_window_pattern", std::uint32_t{3});
                }),
                concat("\"", arch, ".attention.sliding_window_pattern\" is 3, which is not supported")));
  }
  // The largest models scale queries by other numbers, as their layers are so many.
  model::Config large;
  large.model_type = "gemma2";
  large.num_hidden_layers = 46;
  large.hidden_size = 4608;
  large.num_attention_heads = 32;
  large.head_dim = 128;
  CHECK(model::gguf_query_scalar(large) == 144);
  large.model_type = "gemma3_text";
  CHECK(model::gguf_query_scalar(large) == 128);
  large.num_hidden_layers = 62;
  CHECK(model::gguf_query_scalar(large) == 144);
}

TEST_CASE("gemma: a merged model is the folder's, and of a GGUF file one whose norms are written less 1") {
  const TempFolder temp;
  for (const char* type : {"gemma2", "gemma3_text"}) {
    CAPTURE(type);
    const RandomModel shape = small(type);
    write_random_model(temp / type, shape);
    export_gguf(temp / type, temp / "m.gguf");
    const auto merged = [&](const std::filesystem::path& base, const std::string& name) {
      const auto source = model::Source::open(base);
      D dev(1);
      model::Decoder<D, float> decoder(dev, source);
      std::filesystem::create_directories(temp / name);
      model::save_merged(dev, decoder, source, temp / name, DType::f32, Index{1} << 30);
      return temp / name;
    };
    const auto from_folder = merged(temp / type, concat(type, "-1"));
    CHECK(io::read_file(from_folder / "model.safetensors").size() > 0);
    CHECK(logits_of(from_folder) == logits_of(temp / type));
    const auto from_gguf = merged(temp / "m.gguf", concat(type, "-2"));
    CHECK(model::Source::open(from_gguf).config().norm_offset == 1);
    const auto norms = io::Safetensors::open(from_gguf / "model.safetensors");
    for (const auto& tensor : random_tensors(shape)) {
      if (tensor.name.find("norm") == std::string::npos) continue;
      const auto* const stored = norms.find(tensor.name);
      REQUIRE(stored != nullptr);
      for (std::size_t i = 0; i < tensor.values.size(); ++i) {
        float value = 0;
        std::memcpy(&value, stored->bytes.data() + i * sizeof value, sizeof value);
        CHECK(std::fabs(static_cast<double>(value) - tensor.values[i]) <= 0x1p-23);  // of 1 + w, rounded
      }
    }
  }
}

TEST_CASE("gemma: what llama.cpp has no place for is refused") {
  const auto said = [](const char* type, const std::function<void(model::Config&)>& change) {
    model::Config config = parsed(config_json(small(type)));
    CHECK_NOTHROW(model::check_gguf(config, "M"));
    change(config);
    return message_of<FormatError>([&] { model::check_gguf(config, "M"); });
  };
  const auto no_place = [](const std::string& what, const char* arch, const char* expected) {
    return concat("M: ", what, ", which llama.cpp's ", arch, " has no place for; expected ", expected);
  };
  for (const auto& [type, arch, every] :
       {std::tuple("gemma2", "gemma2", "all but each of 2"), {"gemma3_text", "gemma3", "all but each of 6"}}) {
    CHECK(said(type, [](auto& c) { c.windows[0] = 0; }) == no_place("other layers have a sliding window", arch, every));
    CHECK(said(type, [](auto& c) { c.windows.assign(c.windows.size(), 0); }) ==
          no_place("other layers have a sliding window", arch, every));
    CHECK(said(type, [](auto& c) { c.query_scalar = 7; }) == no_place("query_pre_attn_scalar is 7", arch, "6"));
    CHECK(said(type, [](auto& c) { c.qkv_bias = true; }) == no_place("q, k and v have biases", arch, "none"));
  }
  CHECK(said("gemma2", [](auto& c) { c.attention_cap = 0; }) ==
        no_place("attn_logit_softcapping is not there", "gemma2", "one"));
  CHECK(said("gemma3_text", [](auto& c) { c.logit_cap = 3; }) ==
        no_place("final_logit_softcapping is there", "gemma3", "none"));
  CHECK(said("gemma2", [](auto& c) { c.tie_word_embeddings = false; }) ==
        no_place("the head is not the embedding's", "gemma2", "it to be"));
}

TEST_CASE("gemma: weights of a model that nothing has trained count as 1 with their offset") {
  model::Config config = parsed(config_json(small("gemma2")));
  const model::RandomWeights weights(config, 3);
  for (const auto& info : model::tensors_of(config)) {
    if (info.kind != model::TensorInfo::Kind::norm) continue;
    const auto tensor = weights.provide(info);
    for (std::size_t i = 0; i < tensor.bytes.size(); ++i) CHECK(tensor.bytes[i] == std::byte{0});
  }
}

}  // namespace gemma_test
