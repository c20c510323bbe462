// What an adapter folder says of its base, and that the next command takes it from there.

#include "lora/run/final_model.hpp"

#include <doctest/doctest.h>

#include "lora/cpu/kernels.hpp"
#include "lora/inputs/model_files.hpp"
#include "support/message_of.hpp"
#include "support/random_gguf.hpp"
#include "support/temp_folder.hpp"

namespace final_model_test {

using namespace lora;
using namespace lora::settings;
using namespace lora::run;
using namespace lora::inputs;
using lora::test::holds;
using lora::test::message_of;

namespace {

/// A base as a folder and as a GGUF file, and adapter folders written for it.
struct Workshop {
  test::TempFolder temp;
  test::RandomModel shape;

  explicit Workshop(const std::string& family) {
    shape.family = family;
    test::write_random_model(temp / "base", shape);
    if (family != "smollm3") test::write_gguf(temp / "base.gguf", shape, test::random_tensors(shape), DType::f32);
  }
  Config config(const std::string& base) const {
    Config config;
    config.model_name_or_path = (temp / base).native();
    config.dataset = {"/data/train.json"};
    return config;
  }
  /// The text of README.md.
  std::string write_adapter(const Config& config) const {
    const auto source = open_source(config);
    cpu::Device dev{1};
    model::Decoder<cpu::Device, float> decoder(dev, source);
    decoder.attach(dev, {});
    io::create_folders(temp / "adapter");
    write_adapter_folder(dev, decoder, source, nullptr, model_card(config, source, &decoder.adapter(), {}),
                         temp / "adapter");
    return io::read_file(temp / "adapter" / "README.md");
  }
  bool has_config() const { return std::filesystem::exists(temp / "adapter" / "config.json"); }
};

}  // namespace

TEST_CASE("final_model: the folder of an ordinary base tells how to load it, and needs no config.json") {
  const Workshop shop("qwen3");
  const auto card = shop.write_adapter(shop.config("base"));
  CHECK(holds(card, "from_pretrained(\"" + (shop.temp / "base").native() + "\")\n"));
  CHECK(holds(card, "import AutoModelForCausalLM\n"));
  CHECK_FALSE(shop.has_config());
  auto config = shop.config("base");
  config.dataset = {"data/first.jsonl", "second.json"};
  const auto told = shop.write_adapter(config);
  const std::string base = (shop.temp / "base").native();
  CHECK(holds(told, "base_model: \"" + base + "\"\n"));
  CHECK(holds(told, "\nFine-tuned from `" + base + "` on `first.jsonl` `second.json`.\n\n| setting | value |\n"));
}

TEST_CASE("final_model: a GGUF base is loaded by folder and file") {
  const Workshop shop("llama");
  const auto card = shop.write_adapter(shop.config("base.gguf"));
  CHECK(holds(card, "from_pretrained(\"" + shop.temp.path().native() + "\", gguf_file=\"base.gguf\")\n"));
  CHECK(model::parse_config(io::read_json(shop.temp / "adapter" / "config.json"), "config.json").model_type == "llama");
  Config here = shop.config("base.gguf");
  const auto source = open_source(here);
  here.model_name_or_path = "base.gguf";
  const model::AdapterConfig adapter;
  CHECK(holds(model_card(here, source, &adapter, {}), "from_pretrained(\".\", gguf_file=\"base.gguf\")\n"));
}

TEST_CASE("final_model: rotary settings of a run go with its adapter") {
  for (const char* base : {"base", "base.gguf"}) {
    const Workshop shop("qwen2");
    Config config = shop.config(base);
    config.rope_theta = 123;
    config.no_rope_layers = {1};
    const auto card = shop.write_adapter(config);
    CHECK(holds(card, ", config=config)"));
    CHECK(holds(card, "\nThese layers run without rotary embedding: 1.\n"));
    CHECK(holds(card, "for layer, rotates in zip(base.model.layers, base.config.no_rope_layers):\n"));
    const auto source = open_source(config);
    CHECK(holds(model_card(config, source, nullptr, {}),
                "for layer, rotates in zip(model.model.layers, model.config.no_rope_layers):\n"));
    REQUIRE(shop.has_config());

    Config later = shop.config(base);
    later.adapter_name_or_path = (shop.temp / "adapter").native();
    const auto expect = [&](const Config& keys) {
      const auto source = open_source(keys);
      CHECK(source.config().rope.theta == 123);
      CHECK(source.config().rotates == std::vector<bool>{true, false});
    };
    expect(later);
    later.rope_theta = 123;
    later.no_rope_layers = {1};
    expect(later);
    later.rope_theta = 500;
    CHECK(holds(message_of<ConfigError>([&] { open_source(later); }), "key rope_theta: given 500, but the adapter "));
    later.rope_theta = {};
    later.no_rope_layers = {0, 1};
    CHECK(holds(message_of<ConfigError>([&] { open_source(later); }),
                "key no_rope_layers: layer 0 would run without rotary embedding, but the adapter "));
  }
}

TEST_CASE("final_model: rope_theta alone goes with an adapter as well") {
  const Workshop shop("llama");
  Config config = shop.config("base");
  config.rope_theta = 123;
  const auto card = shop.write_adapter(config);
  CHECK(holds(card, ", config=config)"));
  CHECK_FALSE(holds(card, "without rotary embedding"));
  REQUIRE(shop.has_config());
  CHECK(model::parse_config(io::read_json(shop.temp / "adapter" / "config.json"), "config.json").rope.theta == 123);
}

TEST_CASE("final_model: smollm3's config.json can tell its layers, so that the card needs no warning") {
  const Workshop shop("smollm3");
  Config config = shop.config("base");
  config.no_rope_layers = {0};
  const auto card = shop.write_adapter(config);
  CHECK(holds(card, ", config=config)"));
  CHECK_FALSE(holds(card, "without rotary embedding"));
  CHECK(model::parse_config(io::read_json(shop.temp / "adapter" / "config.json"), "config.json").rotates ==
        std::vector<bool>{false, true});
}

TEST_CASE("final_model: another's config.json beside an adapter changes nothing that it does not tell") {
  const Workshop shop("qwen2");
  shop.write_adapter(shop.config("base"));
  io::write_file(shop.temp / "adapter" / "config.json", std::string_view(R"({"quantization_config": {"bits": 4}})"));
  Config config = shop.config("base");
  config.adapter_name_or_path = (shop.temp / "adapter").native();
  const auto source = open_source(config);
  CHECK_FALSE(model::rotary_changed(source));
}

}  // namespace final_model_test
