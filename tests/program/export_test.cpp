// The command export: its files answer as base and adapter do, it says what it wrote, and leaves nothing where it
// refuses.

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "lora/io/formats/gguf.hpp"
#include "lora/io/formats/json.hpp"
#include "support/message_of.hpp"
#include "support/program.hpp"
#include "support/talking_model.hpp"
#include "support/temp_folder.hpp"

namespace export_test {

using namespace lora;

namespace {

/// A model that talks, an adapter of it, and a place for files.
struct Subject {
  test::TempFolder temp;

  Subject() {
    test::write_talking_model(temp / "base");
    test::write_talking_adapter(temp / "base", temp / "adapter");
    io::write_json(temp / "base" / "generation_config.json", {{"eos_token_id", {259, 'q'}}});
  }

  test::Outcome exported(const std::vector<std::string>& more) const {
    std::vector<std::string> words = {"export", "--model_name_or_path", (temp / "base").native()};
    words.insert(words.end(), more.begin(), more.end());
    return test::run_program(LORA_PROGRAM, words);
  }
  std::string adapter() const { return "--adapter_name_or_path=" + (temp / "adapter").native(); }
  std::string file(const char* name) const { return "--output_file=" + (temp / name).native(); }

  std::string answer(const io::Path& model, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {"generate",          "--model_name_or_path=" + model.native(),
                                      "--template=chatml", "--dtype=float32",
                                      "--prompt=two",      "--max_new_tokens=12"};
    words.insert(words.end(), more.begin(), more.end());
    const auto outcome = test::run_program(LORA_PROGRAM, words);
    CAPTURE(outcome.errors);
    REQUIRE(outcome.status == 0);
    return outcome.output;
  }

  void check_refused(const test::Outcome& outcome, int status, const std::string& words) const {
    CAPTURE(outcome.errors);
    CHECK(outcome.status == status);
    CHECK(test::holds(outcome.errors, words));
    for (const auto& entry : std::filesystem::directory_iterator(temp.path()))
      CHECK(entry.path().native().find(".lora-") == std::string::npos);
  }
};

}  // namespace

TEST_CASE("program: an exported file answers as base and adapter do, and a line says what it holds") {
  const Subject s;
  const auto merged = s.exported({s.adapter(), s.file("merged.gguf"), "--outtype=f32", "--threads=1"});
  CAPTURE(merged.errors);
  REQUIRE(merged.status == 0);
  CHECK(merged.output.empty());
  const auto size = std::filesystem::file_size(s.temp / "merged.gguf");
  const auto tensors = io::Gguf::open(s.temp / "merged.gguf").tensors().size();
  CHECK(test::holds(merged.errors,
                    concat((s.temp / "merged.gguf").native(), ": a qwen3 model, merged with its adapter, f32, ",
                           tensors, " tensors, ", size, " bytes\n")));
  CHECK(s.answer(s.temp / "merged.gguf") == s.answer(s.temp / "base", {s.adapter()}));
  CHECK(s.answer(s.temp / "merged.gguf") != s.answer(s.temp / "base"));

  const auto plain = s.exported({s.file("plain.gguf"), "--outtype=f32"});
  REQUIRE(plain.status == 0);
  CHECK(test::holds(plain.errors, ": a qwen3 model, f32, "));
  CHECK(s.answer(s.temp / "plain.gguf") == s.answer(s.temp / "base"));
  const auto file = io::Gguf::open(s.temp / "plain.gguf");
  CHECK(file.at<std::string>("general.name") == "base");
  CHECK(file.at<std::int32_t>("tokenizer.ggml.eos_token_id") == 257);  // tokenizer_config.json's
  CHECK(file.at<std::int32_t>("tokenizer.ggml.eot_token_id") == 259);
  CHECK(file.at<std::int32_t>("tokenizer.ggml.eom_token_id") == 'q');
}

TEST_CASE("program: export takes the template and the end that the adapter was trained with") {
  const Subject s;
  io::write_json(s.temp / "adapter" / "tokenizer_config.json", {{"eos_token", "<think>"}});
  io::write_file(s.temp / "adapter" / "chat_template.jinja", std::string_view("{{ learned }}"));
  REQUIRE(s.exported({s.adapter(), s.file("m.gguf")}).status == 0);
  const auto file = io::Gguf::open(s.temp / "m.gguf");
  CHECK(file.at<std::string>("tokenizer.chat_template") == "{{ learned }}");
  CHECK(file.at<std::int32_t>("tokenizer.ggml.eos_token_id") == 258);
  CHECK(file.at<std::uint32_t>("general.file_type") == 1);  // auto of float32
  const auto adapter = s.exported({s.adapter(), s.file("a.gguf"), "--adapter_only"});
  CHECK(adapter.status == 0);
  CHECK(test::holds(adapter.errors, "the adapter's chat template and end of answers are not in its file"));
}

TEST_CASE("program: export names what is not in an adapter's file, whichever of the two it has learned") {
  const Subject s;
  const std::string warning =
      "Warning: the adapter's chat template and end of answers are not in its file: the base's file has the base's\n";
  const auto warned = [&] {
    std::filesystem::remove(s.temp / "a.gguf");
    return test::holds(s.exported({s.adapter(), s.file("a.gguf"), "--adapter_only"}).errors, warning);
  };
  CHECK_FALSE(warned());
  io::write_file(s.temp / "adapter" / "chat_template.jinja", std::string_view("{{ learned }}"));
  CHECK(warned());
  std::filesystem::remove(s.temp / "adapter" / "chat_template.jinja");
  io::write_json(s.temp / "adapter" / "tokenizer_config.json", {{"eos_token", "<think>"}});
  CHECK(warned());
}

TEST_CASE("program: an exported file has the name of its folder, and the tokenizer's end once and first") {
  const Subject s;
  io::write_json(s.temp / "base" / "generation_config.json", {{"eos_token_id", {259, 257, 'q'}}});
  std::filesystem::create_directory_symlink(s.temp / "base", s.temp / "base-0.5B");
  const std::vector<std::string> words = {"export", "--model_name_or_path=" + (s.temp / "base-0.5B").native() + "/",
                                          s.file("m.gguf"), "--outtype=bf16"};
  const auto outcome = test::run_program(LORA_PROGRAM, words);
  CAPTURE(outcome.errors);
  REQUIRE(outcome.status == 0);
  const auto file = io::Gguf::open(s.temp / "m.gguf");
  CHECK(outcome.errors == concat((s.temp / "m.gguf").native(), ": a qwen3 model, bf16, ", file.tensors().size(),
                                 " tensors, ", std::filesystem::file_size(s.temp / "m.gguf"), " bytes\n"));
  CHECK(file.at<std::string>("general.name") == "base-0.5B");
  CHECK(file.at<std::int32_t>("tokenizer.ggml.eos_token_id") == 257);
  CHECK(file.at<std::int32_t>("tokenizer.ggml.eot_token_id") == 259);
  CHECK(file.at<std::int32_t>("tokenizer.ggml.eom_token_id") == 'q');
}

TEST_CASE("program: export writes an adapter alone") {
  const Subject s;
  const auto outcome = s.exported({s.adapter(), s.file("a.gguf"), "--adapter_only"});
  CAPTURE(outcome.errors);
  REQUIRE(outcome.status == 0);
  const auto file = io::Gguf::open(s.temp / "a.gguf");
  CHECK(outcome.errors == concat((s.temp / "a.gguf").native(), ": an adapter of a qwen3 model, f32, ",
                                 file.tensors().size(), " tensors, ", std::filesystem::file_size(s.temp / "a.gguf"),
                                 " bytes\n"));
  CHECK(file.at<std::string>("general.name") == "adapter");
  CHECK(file.at<std::string>("general.type") == "adapter");
  CHECK(file.at<float>("adapter.lora.alpha") == 4.5f);
  REQUIRE(file.find("blk.0.attn_q.weight.lora_b") != nullptr);
  CHECK(file.find("blk.0.attn_q.weight.lora_b")->shape[1] == 3);
}

TEST_CASE("program: export warns that llama.cpp computes a phi3 without its window, and writes it") {
  const Subject s;
  for (const bool windowed : {true, false}) {
    const std::string name = windowed ? "window" : "none";
    const test::RandomModel shape{
        .family = "phi3", .vocabulary = 264, .more = {{"sliding_window", windowed ? io::Json(5) : io::Json()}}};
    test::write_random_model(s.temp / name, shape);
    for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
      std::filesystem::copy_file(s.temp / "base" / file, s.temp / name / file);
    const auto outcome = test::run_program(LORA_PROGRAM, {"export", "--model_name_or_path", (s.temp / name).native(),
                                                          s.file((name + ".gguf").c_str()), "--outtype=f32"});
    CAPTURE(outcome.errors);
    REQUIRE(outcome.status == 0);
    CHECK(test::holds(outcome.errors, ": a phi3 model, f32, "));
    CHECK(windowed == test::holds(outcome.errors, "llama.cpp computes a phi3 without its sliding window of 5 tokens"));
    CHECK(io::Gguf::open(s.temp / (name + ".gguf")).at<Index>("phi3.attention.sliding_window") == (windowed ? 5 : 0));
    CHECK(s.answer(s.temp / (name + ".gguf")) == s.answer(s.temp / name));
  }
}

TEST_CASE("program: export writes an adapter of a base whose windows llama.cpp computes") {
  const Subject s;
  const test::RandomModel shape{.family = "gemma3_text", .vocabulary = 264, .more = {{"sliding_window", 5}}};
  test::write_random_model(s.temp / "gemma", shape);
  test::write_talking_adapter(s.temp / "gemma", s.temp / "of_gemma");
  const auto outcome = test::run_program(
      LORA_PROGRAM, {"export", "--model_name_or_path", (s.temp / "gemma").native(), "--adapter_name_or_path",
                     (s.temp / "of_gemma").native(), s.file("of_gemma.gguf"), "--adapter_only"});
  CAPTURE(outcome.errors);
  REQUIRE(outcome.status == 0);
  CHECK_FALSE(test::holds(outcome.errors, "window"));
  CHECK(io::Gguf::open(s.temp / "of_gemma.gguf").at<std::string>("general.architecture") == "gemma3");
}

TEST_CASE("program: export refuses with one line, and leaves nothing") {
  const Subject s;
  io::write_file(s.temp / "there.gguf", std::string_view("mine"));
  s.check_refused(
      s.exported({s.file("there.gguf")}), 2,
      "error: key output_file: given " + (s.temp / "there.gguf").native() + ", which exists; allowed: a new file");
  CHECK(io::read_file(s.temp / "there.gguf") == "mine");
  s.check_refused(s.exported({s.file("m.gguf"), "--no_rope_layers=0"}), 1, "layer 0 runs without rotary embedding");
  s.check_refused(s.exported({"--output_file=" + (s.temp / "no" / "m.gguf").native()}), 1, "error: ");
  test::write_foreign_adapter(s.temp / "foreign");
  const std::string foreign = "--adapter_name_or_path=" + (s.temp / "foreign").native();
  for (const char* more : {"--adapter_only=false", "--adapter_only=true"})
    s.check_refused(s.exported({foreign, s.file("m.gguf"), more}), 1, test::foreign_adapter_message);
  // An adapter that was trained with other rotary settings.
  auto shape = io::read_json(s.temp / "base" / "config.json");
  shape["rope_theta"] = 777;
  io::write_json(s.temp / "adapter" / "config.json", shape);
  s.check_refused(s.exported({s.adapter(), s.file("m.gguf"), "--adapter_only"}), 1,
                  "was trained with other rotary settings than its base has");
  // One of a base whose windows a file can't say.
  std::filesystem::remove(s.temp / "adapter" / "config.json");
  shape = io::read_json(s.temp / "base" / "config.json");
  shape["use_sliding_window"] = true;
  shape["sliding_window"] = 5;
  shape["max_window_layers"] = 0;
  const std::string whole = io::read_file(s.temp / "base" / "config.json");
  io::write_json(s.temp / "base" / "config.json", shape);
  s.check_refused(s.exported({s.adapter(), s.file("m.gguf"), "--adapter_only"}), 1,
                  "is of a base with a sliding window of 5 tokens");
  s.check_refused(s.exported({s.file("m.gguf")}), 1, "attention has a sliding window of 5 tokens");
  io::write_file(s.temp / "base" / "config.json", std::string_view(whole));
  std::filesystem::remove(s.temp / "base" / "tokenizer.json");
  s.check_refused(s.exported({s.file("m.gguf")}), 1, "no tokenizer.json and no tokenizer.model");
  CHECK_FALSE(std::filesystem::exists(s.temp / "m.gguf"));
}

}  // namespace export_test
