#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "lora/data/records/dataset.hpp"
#include "lora/io/formats/json.hpp"
#include "support/program.hpp"
#include "support/random_model.hpp"
#include "support/temp_folder.hpp"

namespace examples_test {

using namespace lora;

namespace {

std::string example(const std::string& name) { return test::shell_word(LORA_EXAMPLES "/" + name); }

/// A random model with SmolLM2's template and its tokenizer without merges: a token is a byte.
void write_model(const io::Path& folder) {
  test::RandomModel model;
  model.family = "llama";
  model.vocabulary = 252;
  test::write_random_model(folder, model);
  const io::Path data = LORA_FIXTURES;
  io::copy_file(data / "tokenizers" / "smollm2.json", folder / "tokenizer.json");
  io::copy_file(data / "templates" / "smollm2.jinja", folder / "chat_template.jinja");
  io::write_file(folder / "tokenizer_config.json", R"({"eos_token": "<|im_end|>"})");
}

std::string line_after(const std::string& text, const std::string& start) {
  const auto at = text.find(start);
  REQUIRE(at != std::string::npos);
  return text.substr(at + start.size(), text.find('\n', at) - at - start.size());
}

}  // namespace

TEST_CASE("examples: fine_tune trains on conversations, and merge_and_generate merges what it wrote") {
  const test::TempFolder temp;
  write_model(temp / "model");
  io::write_file(temp / "data.json", R"([{"instruction": "Say A", "output": "AAAA"},
                                         {"instruction": "Say B", "output": "BBBB"}])");
  const std::string model = (temp / "model").native(), run = (temp / "run").native();
  const auto trained = test::run_program(example("fine_tune"), {model, (temp / "data.json").native(), run});
  CAPTURE(trained.errors);
  CHECK(trained.status == 0);
  CHECK(trained.output.find("step 1: loss ") == 0);
  CHECK(trained.output.find("the adapter is in " + run) != std::string::npos);

  const std::string merged = (temp / "merged").native();
  const auto answered =
      test::run_program(example("merge_and_generate"), {model, run + "/final_model", merged, "Say A"});
  CAPTURE(answered.errors);
  CHECK(answered.status == 0);
  CHECK(line_after(answered.output, "adapter: ") == line_after(answered.output, "merged:  "));
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json"})
    CHECK(std::filesystem::exists(temp / "merged" / name));

  // An adapter that was taught by another template than its base's answers by that, and so does the merged model.
  const io::Path other = io::Path(LORA_FIXTURES) / "templates" / "qwen2.jinja";
  io::copy_file(other, temp / "run" / "final_model" / "chat_template.jinja");
  const auto again = test::run_program(example("merge_and_generate"),
                                       {model, run + "/final_model", (temp / "again").native(), "Say A"});
  CAPTURE(again.errors);
  CHECK(again.status == 0);
  CHECK(line_after(again.output, "adapter: ") == line_after(again.output, "merged:  "));
  CHECK(io::read_file(temp / "again" / "chat_template.jinja") == io::read_file(other));
}

TEST_CASE("examples: the library's tasks train, measure, answer and merge") {
  const test::TempFolder temp;
  write_model(temp / "model");
  io::write_file(temp / "data.json", R"([{"instruction": "Say A", "output": "AAAA"},
                                         {"instruction": "Say B", "output": "BBBB"}])");
  const auto outcome = test::run_program(
      example("library"), {(temp / "model").native(), (temp / "data.json").native(), (temp / "out").native()});
  CAPTURE(outcome.errors);
  CHECK(outcome.status == 0);
  // Steered: the evaluation of step 2 is left out, and that of step 4 ends the run; its log is printed.
  CHECK(outcome.output.find("\nafter step 4: ") != std::string::npos);
  CHECK(outcome.output.find("\nafter step 2: ") == std::string::npos);
  CHECK(outcome.output.find("| the adapter is in ") != std::string::npos);
  const std::size_t ended = outcome.output.find("\nended after step 4\nperplexity ");
  REQUIRE(ended != std::string::npos);
  CHECK(outcome.output.find("\n[", ended) != std::string::npos);
  CHECK(std::filesystem::exists(temp / "out" / "merged" / "model.safetensors"));
}

TEST_CASE("examples: custom_loop writes an adapter") {
  const test::TempFolder temp;
  test::write_random_model(temp / "model", {});
  std::string lines;
  for (int i = 0; i < 10; ++i) lines += "{\"input_ids\": [1, 2, 3, 4], \"labels\": [-100, 2, 3, 4]}\n";
  io::write_file(temp / "tokens.jsonl", std::string_view(lines));
  const auto outcome =
      test::run_program(example("custom_loop"),
                        {(temp / "model").native(), (temp / "tokens.jsonl").native(), (temp / "adapter").native()});
  CAPTURE(outcome.errors);
  CHECK(outcome.status == 0);
  CHECK(outcome.output.find("step 6: loss ") != std::string::npos);
  CHECK(std::filesystem::exists(temp / "adapter" / "adapter_model.safetensors"));
}

TEST_CASE("examples: what is wrong is one line and no success") {
  for (const char* name : {"fine_tune", "custom_loop", "merge_and_generate", "library"}) {
    const auto usage = test::run_program(example(name), {"only one"});
    CHECK(usage.status == 2);
    CHECK(usage.errors.find("usage: ") == 0);
  }
  const auto missing = test::run_program(example("fine_tune"), {"./nowhere", "./nothing.json", "./never"});
  CHECK(missing.status == 1);
  CHECK(missing.errors.find("error: ") == 0);
}

}  // namespace examples_test
