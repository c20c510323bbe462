#include "lora/model/weights/stop_ids.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "support/message_of.hpp"
#include "support/random_gguf.hpp"
#include "support/random_model.hpp"
#include "support/temp_folder.hpp"

namespace stop_ids_test {

using namespace lora;
using Ids = std::vector<std::int32_t>;

namespace {

/// A base, and a folder with the config.json of what was trained of it.
struct Workshop {
  test::TempFolder temp;

  Workshop() {
    test::RandomModel shape;
    shape.more = {{"eos_token_id", {17, 18}}, {"bos_token_id", 3}, {"pad_token_id", nullptr}};
    test::write_random_model(temp / "base", shape);
    io::create_folders(temp / "out");
  }
  model::Source source() const { return model::Source::open(temp / "base"); }
  void base_says(std::string_view text) const { io::write_file(temp / "base" / "generation_config.json", text); }
  void write(const Ids& ids) const {
    const auto base = source();
    io::write_json(temp / "out" / "config.json", base.config_json());
    model::write_stop_ids(base, ids, temp / "out");
  }
  io::Json json(const char* name) const { return io::read_json(temp / "out" / name); }
  bool has(const char* name) const { return std::filesystem::exists(temp / "out" / name); }
};

}  // namespace

TEST_CASE("stop_ids: a base stops where generation_config.json says, else where config.json does") {
  const Workshop shop;
  CHECK(model::stop_ids_of(shop.source()) == Ids{17, 18});
  shop.base_says(R"({"temperature": 0.5})");
  CHECK(model::stop_ids_of(shop.source()) == Ids{17, 18});
  shop.base_says(R"({"eos_token_id": 5})");
  CHECK(model::stop_ids_of(shop.source()) == Ids{5});
}

TEST_CASE("stop_ids: what stops where its base does has the bytes of its base") {
  const Workshop shop;
  shop.write({});
  CHECK_FALSE(shop.has("generation_config.json"));
  const std::string_view own = "{\"eos_token_id\": 5 , \"top_k\": 20}";
  shop.base_says(own);
  shop.write({});
  CHECK(io::read_file(shop.temp / "out" / "generation_config.json") == own);
  CHECK(shop.json("config.json") == shop.source().config_json());
}

TEST_CASE("stop_ids: a new end is told in generation_config.json and config.json, and the rest of them stays") {
  const Workshop shop;
  shop.write({9, 17, 18});
  // All that transformers would have taken from config.json without such a file.
  CHECK(shop.json("generation_config.json") == io::Json{{"bos_token_id", 3}, {"eos_token_id", {9, 17, 18}}});
  io::Json config = shop.source().config_json();
  config["eos_token_id"] = {9, 17, 18};
  CHECK(shop.json("config.json") == config);
  CHECK(model::parse_config(shop.json("config.json"), "config.json").eos_token_ids == Ids{9, 17, 18});

  shop.base_says(R"({"eos_token_id": 5, "top_k": 20})");
  shop.write({9, 5});
  CHECK(shop.json("generation_config.json") == io::Json{{"eos_token_id", {9, 5}}, {"top_k", 20}});
  CHECK(shop.json("config.json").at("eos_token_id") == io::Json{9, 5});

  shop.base_says(R"({"eos_token_id": 5, "epsilon_cutoff": 3e-4})");
  shop.write({9, 5});
  CHECK(io::read_file(shop.temp / "out" / "generation_config.json").find("\"epsilon_cutoff\": 3e-4\n") !=
        std::string::npos);
}

TEST_CASE("stop_ids: of a GGUF base no file beside it counts") {
  const test::TempFolder temp;
  test::RandomModel shape;
  shape.family = "llama";
  test::write_gguf(temp / "base.gguf", shape, test::random_tensors(shape), DType::f32);
  const auto source = model::Source::open(temp / "base.gguf");
  CHECK(model::stop_ids_of(source) == source.config().eos_token_ids);
  io::create_folders(temp / "out");
  io::write_json(temp / "out" / "config.json", model::config_json_of(source));
  model::write_stop_ids(source, {9}, temp / "out");
  CHECK(io::read_json(temp / "out" / "generation_config.json").at("eos_token_id") == io::Json{9});
}

TEST_CASE("stop_ids: an end that training taught comes first, unless the base has it") {
  const Workshop shop;
  CHECK(model::stop_ids_with(shop.source(), std::nullopt) == Ids{17, 18});
  CHECK(model::stop_ids_with(shop.source(), 9) == Ids{9, 17, 18});
  CHECK(model::stop_ids_with(shop.source(), 18) == Ids{17, 18});
  shop.base_says(R"({"eos_token_id": [5, -2]})");
  CHECK(test::message_of([&] { (void)model::stop_ids_of(shop.source()); }) ==
        (shop.temp / "base" / "generation_config.json").native() + ": \"eos_token_id\" is -2; expected a token's id");
  shop.base_says(R"({"eos_token_id": null})");
  CHECK(model::stop_ids_of(shop.source()) == Ids{17, 18});
}

TEST_CASE("stop_ids: a padding token of config.json goes with the rest of it, where there is one") {
  const Workshop shop;
  const auto base = shop.source();
  io::Json config = base.config_json();
  config["pad_token_id"] = 4;
  config.erase("bos_token_id");
  io::write_json(shop.temp / "out" / "config.json", config);
  model::write_stop_ids(base, {9}, shop.temp / "out");
  CHECK(shop.json("generation_config.json") == io::Json{{"pad_token_id", 4}, {"eos_token_id", {9}}});
}

}  // namespace stop_ids_test
