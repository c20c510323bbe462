// Models whose projections of one input are one matrix (phi3): names of adapters, config.json and GGUF files with
// longrope, and what is refused of them.

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "lora/instantiate.hpp"
#include "lora/model/decoder/adapter.hpp"
#include "lora/model/decoder/decoder.hpp"
#include "lora/model/description/config_gguf.hpp"
#include "lora/model/description/config_json.hpp"
#include "lora/model/export/export_gguf.hpp"
#include "support/message_of.hpp"
#include "support/random_gguf.hpp"
#include "support/random_model.hpp"
#include "support/temp_folder.hpp"

namespace fused_test {

namespace {

using namespace lora;
using namespace lora::test;
using D = cpu::Device;
using Scaling = nn::RopeConfig::Scaling;
using Names = std::vector<std::string>;

const std::filesystem::path golden = std::filesystem::path(LORA_FIXTURES) / "golden";

/// longrope for heads of four columns.
io::Json longrope(const io::Json& changes = io::Json::object()) {
  io::Json scaling = {{"type", "longrope"}, {"short_factor", {1, 1.5}}, {"long_factor", {2, 4}}};
  scaling.update(changes);
  return scaling;
}

RandomModel shape_with(const io::Json& more = io::Json::object()) { return {.family = "phi3", .more = more}; }

model::Config config_with(const io::Json& more) {
  return model::parse_config(config_json(shape_with(more)), "config.json");
}

/// What PEFT has in target_modules of an adapter as it is saved.
Names saved_targets(const std::filesystem::path& folder) {
  return io::read_json(folder / "adapter_config.json").at("target_modules").get<Names>();
}

}  // namespace

TEST_CASE("fused: an adapter has one A and one B for q, k and v together, and is read back") {
  const TempFolder folder;
  write_random_model(folder / "base", shape_with());
  const auto source = model::Source::open(folder / "base");
  D dev(1);
  model::AdapterConfig config;
  config.rank = 3;
  model::Decoder<D, float> decoder(dev, source);
  decoder.attach(dev, config);
  model::init_adapter(dev, decoder, 7);
  std::filesystem::create_directories(folder / "adapter");
  model::save_adapter(dev, decoder, folder / "adapter");
  CHECK(saved_targets(folder / "adapter") == Names{"qkv_proj", "o_proj", "gate_up_proj", "down_proj"});
  const auto files = model::open_adapter(folder / "adapter");
  CHECK(files.tensors.tensors().size() == 2 * 4 * 2);
  const auto shape_of = [&](const std::string& end) {
    const auto* tensor = files.tensors.find("base_model.model.model.layers.1." + end);
    REQUIRE_MESSAGE(tensor != nullptr, end);
    return tensor->shape;
  };
  CHECK(shape_of("self_attn.qkv_proj.lora_A.weight") == Shape{3, 16});
  CHECK(shape_of("self_attn.qkv_proj.lora_B.weight") == Shape{32, 3});
  CHECK(shape_of("self_attn.o_proj.lora_B.weight") == Shape{16, 3});
  CHECK(shape_of("mlp.gate_up_proj.lora_A.weight") == Shape{3, 16});
  CHECK(shape_of("mlp.gate_up_proj.lora_B.weight") == Shape{48, 3});
  CHECK(shape_of("mlp.down_proj.lora_A.weight") == Shape{3, 24});
  CHECK_NOTHROW(model::check_adapter(files, source.config()));
  CHECK_NOTHROW(model::load_adapter(dev, decoder, files));
}

TEST_CASE("fused: targets that the model doesn't have are refused, and all-linear is what it has") {
  const TempFolder folder;
  write_random_model(folder / "phi3", shape_with());
  write_random_model(folder / "qwen3", {});
  D dev(1);
  const auto said = [&](const char* family, const Names& targets) {
    model::Decoder<D, float> decoder(dev, model::Source::open(folder / family));
    model::AdapterConfig config;
    config.targets = targets;
    return message_of<ConfigError>([&] { decoder.attach(dev, config); });
  };
  CHECK(said("phi3", {"o_proj", "q_proj"}) ==
        "the adapter targets q_proj, which a model of type phi3 doesn't have; expected some of qkv_proj, o_proj, "
        "gate_up_proj, down_proj");
  CHECK(said("qwen3", {"gate_up_proj"}) ==
        "the adapter targets gate_up_proj, which a model of type qwen3 doesn't have; expected some of q_proj, k_proj, "
        "v_proj, o_proj, gate_proj, up_proj, down_proj");
  CHECK(said("phi3", {"self_attn.qkv_proj"}) == "nothing was thrown");
  CHECK(said("phi3", {"model.layers.1.mlp.gate_up_proj"}) == "nothing was thrown");

  // An adapter's file, by what its settings say.
  std::filesystem::copy(golden / "phi3" / "adapter", folder / "adapter");
  io::Json json = io::read_json(folder / "adapter" / "adapter_config.json");
  const auto config = model::parse_config(io::read_json(golden / "phi3" / "config.json"), "config.json");
  const auto told = [&](const io::Json& targets) {
    json["target_modules"] = targets;
    io::write_json(folder / "adapter" / "adapter_config.json", json);
    return message_of<FormatError>([&] { model::check_adapter(model::open_adapter(folder / "adapter"), config); });
  };
  CHECK(told("all-linear") == "nothing was thrown");
  CHECK(told({"qkv_proj", "o_proj", "gate_up_proj", "down_proj"}) == "nothing was thrown");
  CHECK(told({"qkv_proj", "v_proj"}) ==
        (folder / "adapter" / "adapter_config.json").native() +
            ": \"target_modules\" has \"v_proj\", which fits no module of this model; its modules are "
            "model.layers.0.self_attn.qkv_proj, model.layers.0.mlp.gate_up_proj and so on up to "
            "model.layers.1.mlp.down_proj");
}

TEST_CASE("fused: longrope is read in all its spellings, with the lengths and factors that transformers takes") {
  for (const char* kind : {"longrope", "su", "yarn"}) {
    CAPTURE(kind);
    const auto c = config_with({{"rope_scaling", longrope({{"type", kind}})}, {"max_position_embeddings", 16384}});
    CHECK(c.rope.scaling == Scaling::longrope);
    CHECK(c.rope.short_factors == std::vector<float>{1, 1.5});
    CHECK(c.rope.long_factors == std::vector<float>{2, 4});
    CHECK((c.rope.original_max_position_embeddings == 4096 && c.rope.factor == 4 && c.rope.attention_factor == 0));
    CHECK(model::longest_sequence(c) == 4096);
  }
  const auto c = config_with(
      {{"rope_parameters",
        longrope(
            {{"rope_theta", 500}, {"factor", 7}, {"attention_factor", 1.5}, {"original_max_position_embeddings", 64}})},
       {"original_max_position_embeddings", 64}});
  CHECK((c.rope.theta == 500 && c.rope.factor == 7 && c.rope.attention_factor == 1.5));
  CHECK(c.rope.original_max_position_embeddings == 64);
  CHECK(model::longest_sequence(c) == 64);
  CHECK(model::longest_sequence(config_with({{"rope_scaling", longrope({{"long_factor", {1, 1.5}}})}})) == 4096);

  const auto said = [](const io::Json& more) { return message_of<FormatError>([&] { config_with(more); }); };
  CHECK(said({{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2}}}}) ==
        "config.json: \"rope_type\" is \"linear\", which is not supported; expected default or longrope");
  CHECK(said({{"rope_scaling", longrope({{"short_factor", {1, 2, 3}}})}}) ==
        "config.json: the rope scaling \"short_factor\" has 3 numbers; expected 2, one for each pair of a head's "
        "columns");
  CHECK(said({{"rope_scaling", longrope({{"long_factor", nullptr}})}}) ==
        "config.json: rope_scaling: \"long_factor\" is null");
  CHECK(
      said({{"rope_scaling", longrope({{"original_max_position_embeddings", 64}})}}) ==
      "config.json: rope_scaling: \"original_max_position_embeddings\" is 64; expected 4096, as beside it, where 4096 "
      "is the default");
  CHECK(said({{"rope_scaling", longrope({{"short_factor", {1, 0}}})}}) ==
        "config.json: the rope settings give frequencies that are no finite numbers");
  CHECK(said({{"original_max_position_embeddings", 0}, {"rope_scaling", longrope()}}) !=
        "nothing was thrown");  // a factor that is no number
  for (const char* field : {"resid_pdrop", "embd_pdrop", "attention_dropout"})
    CHECK(said({{field, 0.1}}) ==
          concat("config.json: \"", std::string_view(field), "\" is 0.1, which is not supported; expected 0"));
  CHECK(said({{"partial_rotary_factor", 0.75}}) ==
        "config.json: \"partial_rotary_factor\" is 0.75, which is not supported; expected 1");
}

TEST_CASE("fused: config.json is written as published ones are, and read back as the same") {
  for (const io::Json& scaling : {io::Json(), longrope(), longrope({{"factor", 3}, {"attention_factor", 1.25}})})
    for (const io::Json& window : {io::Json(), io::Json(5)}) {
      const auto first = config_with({{"rope_scaling", scaling},
                                      {"sliding_window", window},
                                      {"original_max_position_embeddings", scaling.is_null() ? 4096 : 64}});
      const io::Json json = model::to_json(first, "bfloat16", "x.gguf");
      const auto again = model::parse_config(json, "config.json");
      CHECK(json["architectures"][0] == "Phi3ForCausalLM");
      CHECK((again.fused && again.rms_norm_eps == first.rms_norm_eps && again.windows == first.windows));
      CHECK(again.rope.scaling == first.rope.scaling);
      CHECK(
          (again.rope.short_factors == first.rope.short_factors && again.rope.long_factors == first.rope.long_factors));
      CHECK(nn::rotary_magnitude(again.rope) == nn::rotary_magnitude(first.rope));
      CHECK(nn::longest_rotation(again.rope) == nn::longest_rotation(first.rope));
    }
  const io::Json json =
      model::to_json(config_with({{"rope_scaling", longrope()}, {"original_max_position_embeddings", 64}}), "f", "x");
  CHECK(json["rope_scaling"] == longrope());  // earlier code of the publisher takes these three fields alone
  CHECK(json["original_max_position_embeddings"] == 64);
}

TEST_CASE("fused: a GGUF file has longrope's factors as tensors, a window, and q, k and v in one matrix") {
  const TempFolder folder;
  RandomModel shape = shape_with();
  const auto read = [&](const std::function<void(GgufWriter&)>& add) {
    write_gguf(folder / "x.gguf", shape, random_tensors(shape), DType::f32, {.add = add});
    return model::read_config(io::Gguf::open(folder / "x.gguf"));
  };
  const auto factors = [](GgufWriter& w, const char* name, const std::vector<float>& values) {
    w.add_tensor(name, {values.size()}, 0,
                 {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  };
  const auto both = [&](GgufWriter& w) {
    factors(w, "rope_factors_short.weight", {1, 1.5});
    factors(w, "rope_factors_long.weight", {2, 4});
  };
  const auto plain = read([](GgufWriter&) {});
  CHECK((plain.model_type == "phi3" && plain.fused && plain.rope.scaling == Scaling::none));
  CHECK(plain.windows == std::vector<Index>{0, 0});
  const auto length = [](GgufWriter& w) {
    w.add("phi3.rope.scaling.original_context_length", std::uint32_t{1024});
    w.add("phi3.attention.sliding_window", std::uint32_t{7});
  };
  const auto own = [&](float attention) {
    return read([&](GgufWriter& w) {
      both(w);
      length(w);
      w.add("phi3.rope.scaling.attn_factor", attention);
    });
  };
  const auto usual = static_cast<float>(std::sqrt(1 + std::log(4.0) / std::log(1024.0)));
  const auto scaled = own(usual);
  CHECK(scaled.rope.scaling == Scaling::longrope);
  CHECK((scaled.rope.short_factors == std::vector<float>{1, 1.5} &&
         scaled.rope.long_factors == std::vector<float>{2, 4}));
  CHECK((scaled.rope.original_max_position_embeddings == 1024 && scaled.rope.factor == 4));
  CHECK(scaled.rope.attention_factor == 0);  // it follows from the lengths
  CHECK(scaled.windows == std::vector<Index>{7, 7});
  CHECK(own(1.5F).rope.attention_factor == 1.5);
  CHECK(nn::rotary_magnitude(own(1).rope) == 1);
  CHECK_NOTHROW(model::Source::open(folder / "x.gguf").finish());

  const auto said = [&](const std::function<void(GgufWriter&)>& add) {
    return message_of<FormatError>([&] { read(add); });
  };
  const std::string where = (folder / "x.gguf").native() + ": ";
  CHECK(said([&](GgufWriter& w) {
          factors(w, "rope_factors_short.weight", {1, 1.5});
        }) == where + "the tensor rope_factors_long.weight is missing beside the other one");
  CHECK(said([&](GgufWriter& w) {
          factors(w, "rope_factors_short.weight", {1, 1.5, 2});
          factors(w, "rope_factors_long.weight", {2, 4});
        }) == where + "rope_factors_short.weight is F32 (3); expected F32 (2)");
  CHECK(holds(said(both), "the key phi3.rope.scaling.original_context_length is missing"));
  CHECK(said([](GgufWriter& w) { w.add("phi3.rope.scaling.factor", 2.0F); }) ==
        where + "\"phi3.rope.scaling.factor\" is 2, which is not supported; expected 1");
  CHECK(said([](GgufWriter& w) { w.add("phi3.rope.scaling.type", "yarn"); }) ==
        where +
            "\"phi3.rope.scaling.type\" is \"yarn\", which is not supported; expected none or longrope, whose "
            "factors are tensors");
  CHECK_NOTHROW(read([](GgufWriter& w) { w.add("phi3.rope.scaling.type", "longrope"); }));
  // Such tensors are nothing that another architecture reads.
  shape.family = "qwen3";
  CHECK_NOTHROW(read(both));
  CHECK(holds(message_of<FormatError>([&] { model::Source::open(folder / "x.gguf").finish(); }), "rope_factors_long"));
}

TEST_CASE("fused: an exported file has llama.cpp's keys, and is read back as the same model") {
  const TempFolder folder;
  RandomModel shape =
      shape_with({{"rope_scaling", longrope()}, {"original_max_position_embeddings", 1024}, {"sliding_window", 7}});
  shape.kv_heads = 1;
  write_random_model(folder / "base", shape);
  const auto source = model::Source::open(folder / "base");
  CHECK_NOTHROW(model::check_gguf(source.config(), "M"));
  D dev(1);
  model::Decoder<D, float> decoder(dev, source);
  {
    io::GgufWriter writer(folder / "m.gguf", model::gguf_metadata(source.config(), DType::f32, "m"),
                          model::gguf_tensors(source.config(), DType::f32));
    model::write_gguf_tensors(dev, decoder, DType::f32, writer);
    writer.commit();
  }
  const auto file = io::Gguf::open(folder / "m.gguf");
  CHECK(file.at<std::string>("general.architecture") == "phi3");
  CHECK(file.at<Index>("phi3.attention.sliding_window") == 7);
  CHECK(file.at<Index>("phi3.rope.scaling.original_context_length") == 1024);
  CHECK(file.at<double>("phi3.rope.scaling.attn_factor") ==
        doctest::Approx(std::sqrt(1 + std::log(4.0) / std::log(1024.0))).epsilon(1e-6));
  CHECK_FALSE(file.get<std::string>("phi3.rope.scaling.type").has_value());
  for (const char* name : {"blk.0.attn_qkv.weight", "blk.1.ffn_up.weight"}) {
    CAPTURE(name);
    REQUIRE(file.find(name) != nullptr);
    CHECK(file.find(name)->shape == (name[4] == '0' ? Shape{24, 16} : Shape{48, 16}));
  }
  const auto back = model::Source::open(folder / "m.gguf");
  back.finish();
  CHECK(back.config().windows == source.config().windows);
  CHECK(back.config().rope.short_factors == source.config().rope.short_factors);
  model::Decoder<D, float> again(dev, back);
  for (const auto& info : model::tensors_of(source.config())) {
    CAPTURE(info.name);
    const Arena::Scope scope(dev.arena());
    CHECK(to_host(dev, decoder.value(dev, info)) == to_host(dev, again.value(dev, info)));
  }

  model::Config config = source.config();
  const auto said = [&] { return message_of<FormatError>([&] { model::check_gguf(config, "M"); }); };
  config.head_dim = 6;
  CHECK(said() ==
        "M: 4 heads of 6 columns, which llama.cpp's phi3 has no place for; expected as many columns in all as the "
        "model, 16");
}

}  // namespace fused_test
