#include "lora/inputs/model_files.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "support/byte_tokenizer.hpp"
#include "support/gguf_writer.hpp"
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

}  // namespace model_files_test
