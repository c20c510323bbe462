// The command merge: what its folder holds, and that nothing is written where it refuses.

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <utility>

#include "lora/io/json.hpp"
#include "lora/io/safetensors.hpp"
#include "support/message_of.hpp"
#include "support/program.hpp"
#include "support/talking_model.hpp"
#include "support/temp_folder.hpp"

namespace merge_test {

using namespace lora;

namespace {

const std::filesystem::path golden = std::filesystem::path(LORA_FIXTURES) / "golden";

/// Merges the golden adapter of this family into its base.
test::Outcome merge(const std::string& family, const std::filesystem::path& output, const std::string& key = "--dtype",
                    const std::string& value = "auto") {
  return test::run_program(LORA_PROGRAM, {"merge", "--model_name_or_path", (golden / family).native(),
                                          "--adapter_name_or_path", (golden / family / "adapter").native(),
                                          "--output_dir", output.native(), "--threads", "1", key, value});
}

}  // namespace

TEST_CASE("program: merge writes a model, and over another one only when told to") {
  const test::TempFolder folder;
  const auto first = merge("qwen3", folder / "out");
  CAPTURE(first.errors);
  REQUIRE(first.status == 0);
  for (const char* name : {"config.json", "model.safetensors"}) CHECK(std::filesystem::exists(folder / "out" / name));
  const auto before = io::read_file(folder / "out" / "model.safetensors");
  const auto second = merge("qwen3", folder / "out", "--dtype", "float32");
  CHECK(second.status == 2);
  CHECK(test::holds(second.errors, "which holds a model (model.safetensors)"));
  CHECK(io::read_file(folder / "out" / "model.safetensors") == before);
  CHECK(merge("qwen3", folder / "out", "--overwrite_output_dir", "true").status == 0);
  CHECK(io::read_file(folder / "out" / "model.safetensors") == before);
  const auto parts = merge("qwen3", folder / "parts", "--max_shard_size", "20KB");
  CHECK(parts.status == 0);
  CHECK(std::filesystem::exists(folder / "parts" / "model.safetensors.index.json"));
}

TEST_CASE(
    "program: a merged folder is a whole model: it answers as base and adapter do, with nothing but its own files") {
  const test::TempFolder folder;
  test::write_talking_model(folder / "base");
  test::write_talking_adapter(folder / "base", folder / "adapter");
  io::write_json(folder / "base" / "generation_config.json", {{"eos_token_id", {259, 'q'}}, {"top_k", 20}});
  const auto merged = test::run_program(
      LORA_PROGRAM, {"merge", "--model_name_or_path", (folder / "base").native(), "--adapter_name_or_path",
                     (folder / "adapter").native(), "--output_dir", (folder / "out").native(), "--threads", "1"});
  CAPTURE(merged.errors);
  REQUIRE(merged.status == 0);
  CHECK(merged.output.empty());
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "generation_config.json"})
    CHECK(io::read_file(folder / "out" / name) == io::read_file(folder / "base" / name));
  std::filesystem::rename(folder / "base", folder / "away");
  test::Listener both(folder / "away", folder / "adapter"), base(folder / "away"), whole(folder / "out");
  bool differs = false;
  for (const char* question : {"one", "two", "three", "four"}) {
    const std::string answer = both.answer(question, 9);
    CHECK(whole.answer(question, 9) == answer);
    differs = differs || base.answer(question, 9) != answer;
    const auto said = test::run_program(
        LORA_PROGRAM, {"generate", "--model_name_or_path", (folder / "out").native(), "--template", "chatml", "--dtype",
                       "float32", "--prompt", question, "--max_new_tokens", "9"});
    CHECK(said.output == both.answer(question, 9, {259, 'q'}) + "\n");
  }
  CHECK(differs);
}

TEST_CASE("program: merge stores the type that is asked for") {
  const test::TempFolder folder;
  for (const auto& [name, dtype] :
       {std::pair("float32", DType::f32), std::pair("bfloat16", DType::bf16), std::pair("float16", DType::f16)}) {
    REQUIRE(merge("llama", folder / name, "--dtype", name).status == 0);
    const auto file = io::Safetensors::open(folder / name / "model.safetensors");
    for (const auto& tensor : file.tensors()) CHECK(tensor.dtype == dtype);
  }
}

TEST_CASE("program: merge takes rope_theta into config.json, and refuses layers that it can't tell there") {
  const test::TempFolder folder;
  REQUIRE(merge("qwen2", folder / "out", "--rope_theta", "555").status == 0);
  CHECK(io::read_json(folder / "out" / "config.json").at("rope_parameters").at("rope_theta") == 555);
  REQUIRE(merge("smollm3", folder / "three", "--no_rope_layers", "0").status == 0);
  CHECK(io::read_json(folder / "three" / "config.json").at("no_rope_layers") == io::Json{0, 0, 1});
  const auto refused = merge("qwen2", folder / "none", "--no_rope_layers", "0,2");
  CHECK(refused.status == 2);
  CHECK(test::holds(refused.errors, "runs its layers 0, 2 without rotary embedding"));
  CHECK_FALSE(std::filesystem::exists(folder / "none"));
}

TEST_CASE("program: merge never writes over its base") {
  const test::TempFolder folder;
  std::filesystem::copy(golden / "qwen2", folder / "base", std::filesystem::copy_options::recursive);
  const auto outcome =
      test::run_program(LORA_PROGRAM, {"merge", "--model_name_or_path", (folder / "base").native(),
                                       "--adapter_name_or_path", (folder / "base" / "adapter").native(), "--output_dir",
                                       (folder / "base").native(), "--overwrite_output_dir", "true"});
  CHECK(outcome.status == 2);
  CHECK(test::holds(outcome.errors, "which is the base model's own folder"));
  CHECK(io::read_file(folder / "base" / "model.safetensors") == io::read_file(golden / "qwen2" / "model.safetensors"));
}

}  // namespace merge_test
