#include "lora/inputs/model_files.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "support/byte_tokenizer.hpp"
#include "support/environment.hpp"
#include "support/gguf_writer.hpp"
#include "support/random_model.hpp"
#include "support/temp_folder.hpp"

namespace model_files_test {

using namespace lora;
using namespace lora::settings;
using namespace lora::inputs;
using test::Environment;

namespace {

std::string message_of(const std::string& name) {
  try {
    find_model(name);
  } catch (const IoError& error) {
    return error.what();
  }
  return "found";
}

}  // namespace

TEST_CASE("model_files: a path is itself, a hub name its snapshot in the cache") {
  const test::TempFolder folder;
  const Environment cache("HF_HUB_CACHE", folder.path().native());
  CHECK(find_model(folder.path().native()) == folder.path());
  const auto cached = folder / "models--owner--some-model";
  const auto snapshot = cached / "snapshots" / "0123abc";
  io::create_folders(snapshot);
  CHECK(message_of("owner/some-model").find("hf download owner/some-model") != std::string::npos);
  io::create_folders(cached / "refs");
  io::write_file(cached / "refs" / "main", std::string_view("0123abc\n"));
  CHECK(find_model("owner/some-model") == snapshot);
  io::write_file(cached / "refs" / "main", std::string_view("another"));
  CHECK(message_of("owner/some-model") != "found");
}

TEST_CASE("model_files: a whole model is no adapter, a run's folder has one in final_model") {
  const test::TempFolder folder;
  test::write_random_model(folder / "run" / "final_model", {});
  for (const char* name : {"run", "run/final_model"})
    CHECK_THROWS_WITH_AS(find_adapter((folder / name).native()),
                         doctest::Contains("holds a whole model; allowed: an adapter folder"), ConfigError);
  io::write_file(folder / "run" / "final_model" / "adapter_config.json", std::string_view("{}"));
  CHECK(find_adapter((folder / "run").native()) == folder / "run" / "final_model");
}

TEST_CASE("model_files: the cache is where the environment says") {
  const Environment none("HF_HUB_CACHE", "");
  const Environment home("HF_HOME", "/h");
  CHECK(inputs::detail::hub_cache() == "/h/hub");
  const Environment no_home("HF_HOME", "");
  const Environment cache("XDG_CACHE_HOME", "/c");
  CHECK(inputs::detail::hub_cache() == "/c/huggingface/hub");
  const Environment no_cache("XDG_CACHE_HOME", "");
  const Environment user("HOME", "/u");
  CHECK(inputs::detail::hub_cache() == "/u/.cache/huggingface/hub");
}

TEST_CASE("model_files: what is no hub name is only missing") {
  for (const char* name : {"/no/such/model", "./model", "a/b/c", "model.gguf", "owner/", "a b"}) {
    CAPTURE(name);
    CHECK(message_of(name) == std::string(name) + ": no such file or folder");
  }
}

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

}  // namespace model_files_test
