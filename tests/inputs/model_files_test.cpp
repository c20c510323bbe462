#include "lora/inputs/model_files.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lora/run/talk.hpp"
#include "support/byte_tokenizer.hpp"
#include "support/gguf_writer.hpp"
#include "support/message_of.hpp"
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
                              " is not one of the published ones; conversations are written by ";
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

}  // namespace model_files_test
