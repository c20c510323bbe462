#include "lora/inputs/model_files.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lora/data/chat/chat_template_table.hpp"
#include "lora/run/talk.hpp"
#include "support/byte_tokenizer.hpp"
#include "support/gguf_writer.hpp"
#include "support/message_of.hpp"
#include "support/quiet.hpp"
#include "support/random_model.hpp"
#include "support/temp_folder.hpp"

namespace model_files_test {

using namespace lora;
using namespace lora::inputs;

TEST_CASE("model_files: a folder without tokenizer files, or a GGUF file without its keys, has no tokenizer") {
  const test::TempFolder folder;
  CHECK_FALSE(find_tokenizer(folder.path()));
  test::GgufWriter writer;
  writer.add("general.architecture", "qwen2");
  io::write_file(folder / "bare.gguf", std::string_view(writer.bytes()));
  CHECK_FALSE(find_tokenizer(folder / "bare.gguf"));
  CHECK_THROWS_WITH_AS(fail_without_tokenizer(folder / "bare.gguf"), doctest::Contains("tokenizer.ggml.model"),
                       IoError);
  CHECK_THROWS_WITH_AS(fail_without_tokenizer(folder.path()), doctest::Contains("no tokenizer.json"), IoError);
  writer.add("tokenizer.ggml.model", "gpt2");
  writer.add("tokenizer.ggml.pre", "qwen2");
  io::write_file(folder / "half.gguf", std::string_view(writer.bytes()));
  CHECK_THROWS_WITH_AS(find_tokenizer(folder / "half.gguf"), doctest::Contains("tokenizer.ggml.tokens"), FormatError);
}

TEST_CASE(
    "model_files: an answer ends at what generation_config.json lists, else config.json, and at the template's end") {
  const test::TempFolder folder;
  test::RandomModel shape;
  shape.vocabulary = 260;
  shape.more = {{"eos_token_id", {17, 18}}};
  test::write_random_model(folder.path(), shape);
  io::write_file(folder / "tokenizer.json", std::string_view(test::byte_tokenizer_json()));
  const auto tokenizer = tokenizer::Tokenizer::from_folder(folder.path());
  const std::optional<data::ChatTemplate> chatml = data::ChatTemplate::named("chatml"), none;
  const auto stops = [&](const std::optional<data::ChatTemplate>& chat_template) {
    return stop_ids(model::Source::open(folder.path()), tokenizer, chat_template);
  };
  using Ids = std::vector<std::int32_t>;
  CHECK(stops(none) == Ids{17, 18});
  CHECK(stops(chatml) == Ids{17, 18, 257});
  io::write_json(folder / "generation_config.json", {{"temperature", 0.6}});
  CHECK(stops(none) == Ids{17, 18});
  io::write_json(folder / "generation_config.json", {{"eos_token_id", 5}});
  CHECK(stops(none) == Ids{5});
  io::write_json(folder / "generation_config.json", {{"eos_token_id", {5, 7}}});
  CHECK(stops(none) == Ids{5, 7});
  CHECK(stops(chatml) == Ids{5, 7, 257});
}

TEST_CASE("model_files: with an adapter an answer ends where that of the model does which it is merged into") {
  const test::TempFolder folder;
  test::RandomModel shape;
  shape.vocabulary = 260;
  for (const io::Path& place : {folder / "base", folder.path()}) {
    io::create_folders(place);
    io::write_file(place / "tokenizer.json", std::string_view(test::byte_tokenizer_json()));
  }
  const auto tokenizer = tokenizer::Tokenizer::from_folder(folder / "base");
  using Ids = std::vector<std::int32_t>;
  for (const Ids& own : {Ids{17, 18}, Ids{}}) {
    shape.more = {{"eos_token_id", own}};
    test::write_random_model(folder / "base", shape);
    const auto source = model::Source::open(folder / "base");
    for (const char* end : {"", "\x11", "<|im_end|>", "q", "no single token"}) {
      CAPTURE(end);
      const tokenizer::ChatFiles taught{"", end};
      const auto talk = run::talk_of(source, &tokenizer, taught);
      std::filesystem::copy_file(folder / "base" / "config.json", folder / "config.json",
                                 std::filesystem::copy_options::overwrite_existing);
      std::filesystem::remove(folder / "generation_config.json");
      io::write_file(folder / "model.safetensors", io::read_file(folder / "base" / "model.safetensors"));
      model::write_stop_ids(source, talk.stop_ids, folder.path());
      for (const std::optional<data::ChatTemplate>& chat :
           {std::optional<data::ChatTemplate>(), std::optional(data::ChatTemplate::named("chatml"))}) {
        auto beside = stop_ids(source, tokenizer, chat, taught);
        CHECK(beside == stop_ids(model::Source::open(folder.path()), tokenizer, chat));
        const auto id = tokenizer.encode(end).ids;
        if (id.size() == 1) CHECK(std::count(beside.begin(), beside.end(), id[0]) > 0);
      }
    }
  }
}

TEST_CASE(
    "model_files: the template is the key's, else that which the adapter was trained with, else the model's own") {
  const test::TempFolder folder;
  const auto published = [](const std::string& name) {
    return io::read_file(std::string(LORA_FIXTURES "/templates/") + name + ".jinja");
  };
  io::write_file(folder / "tokenizer.json", std::string_view(test::byte_tokenizer_json()));
  io::write_file(folder / "chat_template.jinja", std::string_view(published("smollm2")));
  const auto tokenizer = tokenizer::Tokenizer::from_folder(folder.path());
  io::create_folders(folder / "adapter");
  io::write_file(folder / "adapter" / "adapter_config.json", std::string_view("{}"));
  const std::string adapter = (folder / "adapter").native();

  std::string warned;
  const auto chosen = [&](const std::string& key, bool adapts = true) {
    settings::Config config;
    config.template_name = key;
    if (adapts) config.adapter_name_or_path = adapter;
    warned.clear();
    const log::Redirect redirect([&](log::Level level, std::string_view text) {
      if (level == log::Level::warning) warned += text;
    });
    return template_of(config, tokenizer, chat_files_of_adapter(config, tokenizer));
  };
  const auto expect = [&](const data::ChatTemplate& found, const std::string& text, const std::string& warning = "") {
    CHECK(found.text() == text);
    CHECK(warned == warning);
  };
  expect(chosen("auto", false), published("smollm2"));
  expect(chosen("chatml", false), published("chatml"));
  expect(chosen("auto"), published("smollm2"));  // an adapter that says nothing
  expect(chosen("chatml"), published("chatml"));

  const std::string own = published("chatml") + "\n";
  io::write_file(folder / "adapter" / "chat_template.jinja", std::string_view(own));
  expect(chosen("auto"), own);
  expect(chosen("chatml"), own);
  expect(chosen("smollm2"), published("smollm2"),
         "key template: given smollm2, but the adapter " + adapter + " was trained with chatml");
  expect(chosen("auto", false), published("smollm2"));

  io::write_file(folder / "adapter" / "chat_template.jinja", std::string_view("another's"));
  const std::string unknown = "the chat template of the adapter " + adapter +
                              " can't be used (the model's chat template leaves out what the assistant says); "
                              "conversations are written by ";
  expect(chosen("auto"), published("smollm2"), unknown + "smollm2, the model's own");
  expect(chosen("chatml"), published("chatml"), unknown + "chatml");

  io::write_file(folder / "adapter" / "chat_template.jinja", std::string_view(published("llama3")));
  CHECK(test::holds(test::message_of<FormatError>([&] { chosen("auto"); }), " writes <|begin_of_text|>, "));
}

TEST_CASE("model_files: the end of an adapter's folder is its own, unless it is its base's and not its template's") {
  const test::TempFolder folder;
  io::write_file(folder / "tokenizer.json", std::string_view(test::byte_tokenizer_json()));
  io::create_folders(folder / "adapter");
  io::write_file(folder / "adapter" / "adapter_config.json", std::string_view("{}"));
  settings::Config config;
  const auto end_of = [&](const char* base, const char* adapter, const std::string& chat) {
    io::write_json(folder / "tokenizer_config.json", {{"eos_token", base}});
    io::write_json(folder / "adapter" / "tokenizer_config.json", {{"eos_token", adapter}, {"chat_template", chat}});
    const auto files = chat_files_of_adapter(config, tokenizer::Tokenizer::from_folder(folder.path()));
    CHECK(files.chat_template == (config.adapter_name_or_path.empty() ? "" : chat));
    return files.eos_token;
  };
  const std::string chatml = io::read_file(LORA_FIXTURES "/templates/chatml.jinja");
  CHECK(end_of("a", "b", chatml).empty());
  config.adapter_name_or_path = (folder / "adapter").native();
  CHECK(end_of("a", "b", chatml) == "b");
  CHECK(end_of("a", "a", chatml).empty());
  CHECK(end_of("<|im_end|>", "<|im_end|>", chatml) == "<|im_end|>");
  CHECK(end_of("a", "a", "another's") == "a");
}

TEST_CASE("model_files: without a tokenizer it is told which file or key would be one") {
  CHECK(test::message_of<IoError>([] { fail_without_tokenizer("a/model.gguf"); }) ==
        "a/model.gguf: no tokenizer, whose key is tokenizer.ggml.model");
  CHECK(test::message_of<IoError>([] { fail_without_tokenizer("a/model"); }) ==
        "a/model: no tokenizer.json and no tokenizer.model");
  const test::TempFolder folder;
  io::write_file(folder / "tokenizer.json", std::string_view(test::byte_tokenizer_json()));
  CHECK(find_tokenizer(folder / "tokenizer.json")->vocab_size() == 260);
  CHECK(find_tokenizer(folder.path())->vocab_size() == 260);
  const test::TempFolder other;
  io::write_file(other / "tokenizer.model", std::string_view("x"));  // which is one too, though a broken one
  CHECK_THROWS_AS(find_tokenizer(other.path()), Error);
}

TEST_CASE("model_files: where no file of the model says where answers end, the tokenizer's end of text does") {
  const test::TempFolder folder;
  test::RandomModel shape;
  shape.vocabulary = 260;
  shape.more = {{"eos_token_id", io::Json::array()}};
  test::write_random_model(folder.path(), shape);
  io::write_file(folder / "tokenizer.json", std::string_view(test::byte_tokenizer_json()));
  using Ids = std::vector<std::int32_t>;
  const auto stops = [&] {
    return stop_ids(model::Source::open(folder.path()), tokenizer::Tokenizer::from_folder(folder.path()), std::nullopt);
  };
  CHECK(stops().empty());
  io::write_json(folder / "tokenizer_config.json", {{"eos_token", "<think>"}});
  CHECK(stops() == Ids{258});
}

TEST_CASE("model_files: rotary keys change the model that is opened, and a layer that is none is refused") {
  const test::TempFolder folder;
  test::write_random_model(folder.path(), {});
  settings::Config config;
  config.model_name_or_path = folder.path().native();
  const double own = open_source(config).config().rope.theta;
  CHECK(open_source(config).config().rotates == std::vector<bool>{true, true});
  config.rope_theta = 2 * own;
  config.no_rope_layers = {1};
  const auto source = open_source(config);
  CHECK(source.config().rope.theta == 2 * own);
  CHECK(source.config().rotates == std::vector<bool>{true, false});
  config.no_rope_layers = {0, 2};
  CHECK(test::message_of<ConfigError>([&] { open_source(config); }) ==
        "key no_rope_layers: given 2, allowed: layers 0 to 1");
}

TEST_CASE("model_files: a sequence longer than the model was made for is warned of, one of that length is not") {
  const test::Quiet quiet;
  model::Config config;
  config.max_position_embeddings = 100;
  warn_of_length(config, 100, "the longest record has");
  config.max_position_embeddings = 0;
  warn_of_length(config, 1'000'000, "the longest record has");
  CHECK(quiet.text.empty());
  config.max_position_embeddings = 100;
  warn_of_length(config, 101, "the longest record has");
  CHECK(quiet.text ==
        "the longest record has 101 tokens, but the model was made for 100 (max_position_embeddings and its rope "
        "scaling): what it computes past them may be poor\n");
}

TEST_CASE("model_files: a sequence longer than longrope's original length is refused, one of another scaling is not") {
  model::Config config;
  config.max_position_embeddings = 100;
  const auto said = [&](Index length) {
    return test::message_of<ConfigError>([&] { expect_supported_length(config, length, "d.jsonl:7:"); });
  };
  CHECK(said(1'000'000) == "nothing was thrown");
  config.rope.scaling = nn::RopeConfig::Scaling::longrope;
  config.rope.original_max_position_embeddings = 50;
  config.rope.short_factors = {1};
  config.rope.long_factors = {2};
  const std::string refused =
      " 51 tokens, but beyond 50 the model's longrope scaling has other factors, which are not supported; allowed: no "
      "more";
  CHECK(said(50) == "nothing was thrown");
  CHECK(said(51) == "d.jsonl:7:" + refused);
  const data::Encoder encoder(nullptr, std::nullopt, {});
  data::Sample sample;
  sample.kind = data::Sample::Kind::tokens;
  sample.where = "d.jsonl:8";
  sample.tokens.assign(50, 3);
  CHECK(supported_prompt(config, encoder, sample) == sample.tokens);
  sample.tokens.push_back(3);
  CHECK(test::message_of<ConfigError>([&] { (void)supported_prompt(config, encoder, sample); }) ==
        "d.jsonl:8: a prompt of" + refused);
}

TEST_CASE("model_files: date and thinking are refused with a template that writes the same without, or with none") {
  for (const auto& entry : data::detail::template_entries) {
    CAPTURE(std::string(entry.name));
    const std::optional<data::ChatTemplate> chat = data::ChatTemplate::named(entry.name, "</s>");
    const bool dated = entry.name == "llama3_1" || entry.name == "llama3_2" || entry.name == "smollm3",
               thinks = entry.name == "qwen3" || entry.name == "smollm3";
    settings::Config config;
    const auto said = [&] { return test::message_of<ConfigError>([&] { refuse_unused_by(chat, config); }); };
    CHECK(said() == "nothing was thrown");
    config.date = "2024-07-26";
    CHECK(said() == (dated ? "nothing was thrown"
                           : concat("key date: given 2024-07-26, but the template ", entry.name, " prints no date")));
    config.date.clear();
    for (const bool value : {true, false}) {
      config.enable_thinking = value;
      CHECK(said() == (thinks ? "nothing was thrown"
                              : concat("key enable_thinking: given ", value, ", but the template ", entry.name,
                                       " writes the same for both values")));
    }
  }
  settings::Config config;
  config.enable_thinking = false;
  CHECK(test::message_of<ConfigError>([&] { refuse_unused_by(std::nullopt, config); }) ==
        "key enable_thinking: given false, but no record is a conversation, to be written by a template");
  CHECK_FALSE(render_options(config).enable_thinking);
  config.enable_thinking.reset();
  config.date = "2024-07-26";
  CHECK(render_options(config).enable_thinking);
  CHECK(render_options(config).date == "2024-07-26");
  CHECK_FALSE(render_options(config).add_generation_prompt);
}

TEST_CASE("model_files: an adapter's rotary settings are its base's from then on, and keys may only repeat them") {
  const test::TempFolder folder;
  test::write_random_model(folder / "base", {});
  io::create_folders(folder / "adapter");
  io::write_json(folder / "adapter" / "adapter_config.json", io::Json::object());
  const std::string adapter = (folder / "adapter").native();
  settings::Config config;
  config.model_name_or_path = (folder / "base").native();
  config.adapter_name_or_path = adapter;
  using Rotates = std::vector<bool>;
  const auto expect = [&](double theta, const Rotates& rotates) {
    const auto source = open_source(config);
    CHECK(source.config().rope.theta == theta);
    CHECK(source.config().rotates == rotates);
  };
  const auto told = [&] { return test::message_of<ConfigError>([&] { open_source(config); }); };
  const double own = model::Source::open(folder / "base").config().rope.theta;
  expect(own, {true, true});  // an adapter that says nothing
  config.no_rope_layers = {0};
  expect(own, {false, true});
  io::write_json(folder / "adapter" / "config.json", {{"rope_theta", 5000}});
  config.no_rope_layers.clear();
  expect(5000, {true, true});
  config.rope_theta = 5000;
  expect(5000, {true, true});
  config.rope_theta = 6000;
  CHECK(told() == "key rope_theta: given 6000, but the adapter " + adapter + " was trained with 5000");
  config.rope_theta.reset();
  config.no_rope_layers = {1};
  expect(5000, {true, false});  // of layers it says nothing
  config.no_rope_layers.clear();
  io::write_json(folder / "adapter" / "config.json", {{"no_rope_layers", {1, 0}}});
  expect(own, {true, false});
  config.no_rope_layers = {1};
  expect(own, {true, false});
  config.no_rope_layers = {0};
  CHECK(told() == "key no_rope_layers: layer 0 would run without rotary embedding, but the adapter " + adapter +
                      " was trained with");
  config.no_rope_layers.clear();
  expect(own, {true, false});
}

TEST_CASE("model_files: a model from scratch is a preset's with the tokenizer's end, or that of a config.json") {
  const test::TempFolder folder;
  settings::Config config;
  config.train_from_scratch = true;
  config.model_preset = "tiny";
  config.tokenizer_name_or_path = folder.path().native();
  CHECK(test::message_of<IoError>([&] { open_source(config); }) ==
        folder.path().native() + ": no tokenizer.json and no tokenizer.model");
  io::write_file(folder / "tokenizer.json", std::string_view(test::byte_tokenizer_json()));
  io::write_json(folder / "tokenizer_config.json", {{"eos_token", "<think>"}});
  const auto tokenizer = tokenizer::Tokenizer::from_folder(folder.path());
  const io::Json preset = model::preset_config("tiny");
  const auto source = open_source(config);
  CHECK(source.path() == folder.path());
  CHECK(source.config().vocab_size == preset.at("vocab_size").get<Index>());
  CHECK(source.config().hidden_size == preset.at("hidden_size").get<Index>());
  CHECK(stop_ids(source, tokenizer, std::nullopt) == std::vector<std::int32_t>{258});
  const auto endless = tokenizer::Tokenizer::from_json(test::byte_tokenizer_json(), "test");
  CHECK(stop_ids(source, endless, std::nullopt) == std::vector<std::int32_t>{258});  // written to the config
  const Index size = preset.at("vocab_size").get<Index>();
  for (const Index last : {size - 1, size}) {
    io::Json json = io::parse_json(test::byte_tokenizer_json(), "test");
    json["model"]["vocab"]["zz"] = last;
    io::write_json(folder / "tokenizer.json", json);
    CHECK(test::message_of<ConfigError>([&] { open_source(config); }) ==
          (last < size ? "nothing was thrown"
                       : concat("key model_preset: given tiny, whose vocabulary has ", size,
                                " tokens, but the tokenizer of ", folder.path().native(), " has ", size + 1)));
  }
  io::write_file(folder / "tokenizer.json", std::string_view(test::byte_tokenizer_json()));

  config.model_preset.clear();
  config.tokenizer_name_or_path.clear();
  config.model_name_or_path = folder.path().native();
  test::RandomModel shape;
  shape.vocabulary = 300;
  shape.more = {{"eos_token_id", 7}};
  io::write_json(folder / "config.json", test::config_json(shape));
  const auto own = open_source(config);
  CHECK(own.config().vocab_size == 300);
  CHECK(stop_ids(own, tokenizer, std::nullopt) == std::vector<std::int32_t>{7});
}

}  // namespace model_files_test
