// Files that a stranger made: models whose numbers spoil the results, files that are none, streams that are closed.

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "lora/io/files/file.hpp"
#include "lora/io/formats/json.hpp"
#include "lora/io/formats/safetensors.hpp"
#include "support/byte_tokenizer.hpp"
#include "support/message_of.hpp"
#include "support/program.hpp"
#include "support/random_model.hpp"
#include "support/random_tokens.hpp"
#include "support/temp_folder.hpp"

namespace strangers_test {

using namespace lora;
using test::holds;

namespace {

/// A tiny model with a tokenizer, and data.
struct Workshop {
  test::TempFolder temp;
  test::RandomModel shape{.vocabulary = 260};

  Workshop() {
    write_model([](auto&) {});
    io::write_file(temp / "model" / "tokenizer.json", std::string_view(test::byte_tokenizer_json()));
    test::write_tokens(temp / "data.jsonl", 8, 1);
    io::create_folders(temp / "adapter");
    write_adapter(2, 2);
  }

  /// An adapter of one projection, whose settings say another rank than its tensors have.
  void write_adapter(Index said, Index rank) const {
    io::write_json(temp / "adapter" / "adapter_config.json", {{"peft_type", "LORA"},
                                                              {"r", said},
                                                              {"lora_alpha", 4},
                                                              {"layers_to_transform", {0}},
                                                              {"target_modules", {"q_proj"}}});
    const std::string name = "base_model.model.model.layers.0.self_attn.q_proj.lora_";
    const std::vector<float> values(static_cast<std::size_t>(rank * 16), 0.1F);
    io::SafetensorsWriter writer(
        temp / "adapter" / "adapter_model.safetensors",
        {{name + "A.weight", DType::f32, {rank, 16}}, {name + "B.weight", DType::f32, {16, rank}}});
    for (const char* side : {"A.weight", "B.weight"}) writer.add(name + side, std::as_bytes(std::span(values)));
    writer.commit();
  }

  void write_model(const std::function<void(std::vector<test::RandomTensor>&)>& change) {
    auto tensors = test::random_tensors(shape);
    change(tensors);
    test::write_model(temp / "model", test::config_json(shape), tensors, shape.dtype);
  }

  /// A tensor holds this number from its fourth on.
  void spoil(const std::string& name, double value) {
    write_model([&](auto& tensors) {
      for (auto& tensor : tensors)
        if (tensor.name == name) std::fill(tensor.values.begin() + 3, tensor.values.end(), value);
    });
  }

  std::vector<std::string> words(const std::string& command) const {
    std::vector<std::string> words = {command, "--threads=1", "--model_name_or_path=" + (temp / "model").native()};
    if (command == "generate") {
      words.insert(words.end(), {"--prompt=a", "--template=chatml", "--max_new_tokens=2"});
    } else {
      words.push_back("--output_dir=" + (temp / command).native());
    }
    if (command == "merge") words.push_back("--adapter_name_or_path=" + (temp / "adapter").native());
    if (command == "eval" || command == "train") words.push_back("--dataset=" + (temp / "data.jsonl").native());
    return words;
  }
  test::Outcome run(const std::string& command) const { return test::run_program(LORA_PROGRAM, words(command)); }
};

/// Of the lines on standard error one is an error, with this in it.
void check_refused(const test::Outcome& outcome, const std::string& part, int status = 1) {
  CAPTURE(outcome.errors);
  CHECK(outcome.status == status);
  const auto at = outcome.errors.find("error: ");
  REQUIRE(at != std::string::npos);
  CHECK(std::count(outcome.errors.begin() + static_cast<std::ptrdiff_t>(at), outcome.errors.end(), '\n') == 1);
  CHECK(holds(outcome.errors, part));
}

}  // namespace

TEST_CASE("strangers: a weight that is no finite number, or too large, is named by eval, generate and merge") {
  Workshop shop;
  const std::string name = "model.norm.weight";
  for (const double value : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), 3e38}) {
    shop.spoil(name, value);
    const std::string told = std::isfinite(value) ? "the largest is 3" : "holds ";
    for (const char* command : {"eval", "generate"}) {
      const auto outcome = shop.run(command);
      check_refused(outcome, told);
      check_refused(outcome, "the tensor " + name + " of " + (shop.temp / "model").native());
      CHECK(outcome.output.empty());
    }
    CHECK_FALSE(std::filesystem::exists(shop.temp / "eval" / "evaluation_results.json"));
    if (std::isfinite(value)) continue;
    check_refused(shop.run("merge"), "the merged tensor " + name + " would hold");
  }
}

TEST_CASE("strangers: a weight that spoils the first step of training is named, or the largest if all are finite") {
  Workshop shop;
  for (const double value : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), 3e38}) {
    shop.spoil("model.norm.weight", value);
    const auto outcome = shop.run("train");
    check_refused(outcome, "step 1: loss ");
    check_refused(outcome, std::isfinite(value) ? "the largest is 3" : std::isnan(value) ? " holds nan" : " holds inf");
    check_refused(outcome, "the tensor model.norm.weight of " + (shop.temp / "model").native());
    std::filesystem::remove_all(shop.temp / "train");
  }
}

TEST_CASE("strangers: an adapter's settings that do not fit its tensors are refused before there is room for them") {
  const Workshop shop;
  CHECK(shop.run("merge").status == 0);
  shop.write_adapter(65536, 2);
  std::filesystem::remove_all(shop.temp / "merge");
  check_refused(shop.run("merge"), "is (2, 16); the config expects (65536, 16)");
}

TEST_CASE("strangers: what is no regular file is an error for every small file of a model") {
  const Workshop shop;
  for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json",
                           "chat_template.jinja", "model.safetensors"}) {
    CAPTURE(name);
    const io::Path file = shop.temp / "model" / name;
    const bool there = std::filesystem::exists(file);
    if (there) std::filesystem::rename(file, shop.temp / "kept");
    std::filesystem::create_symlink("/dev/zero", file);
    check_refused(shop.run("generate"), file.native());
    std::filesystem::remove(file);
    REQUIRE(::mkfifo(file.c_str(), 0600) == 0);
    check_refused(shop.run("generate"), file.native());
    std::filesystem::remove(file);
    std::filesystem::create_symlink("nowhere", file);
    check_refused(shop.run("generate"), file.native());
    std::filesystem::remove(file);
    if (there) std::filesystem::rename(shop.temp / "kept", file);
  }
  auto words = shop.words("generate");
  words.push_back("--config=/dev/zero");
  check_refused(test::run_program(LORA_PROGRAM, words), "/dev/zero: it is a device", 2);
  CHECK(shop.run("generate").status == 0);
}

TEST_CASE("strangers: escape sequences in a file's names do not reach the terminal") {
  Workshop shop;
  shop.write_model([](auto& tensors) { tensors[0].name = "evil\x1B[2J\u009B31m"; });
  const auto outcome = shop.run("generate");
  check_refused(outcome, "");
  CHECK(outcome.errors.find('\x1B') == std::string::npos);
  CHECK(outcome.errors.find("\u009B") == std::string::npos);
}

TEST_CASE("strangers: a date that the calendar does not have") {
  const Workshop shop;
  for (const char* date : {"2024-02-30", "2023-02-29", "2024-13-01", "2024-1-01", "20240101", "2024-04-31"}) {
    auto words = shop.words("generate");
    words.push_back(concat("--date=", std::string_view(date)));
    check_refused(test::run_program(LORA_PROGRAM, words), concat("date: given ", std::string_view(date)), 2);
  }
}

TEST_CASE("strangers: with the standard streams closed no output file takes their place") {
  const Workshop shop;
  const std::string closed = "exec 0<&- 1>&- 2>&-; " LORA_PROGRAM;
  auto words = shop.words("eval");
  std::string command = "( " + closed;
  for (const std::string& word : words) command += " " + test::shell_word(word);
  CHECK(test::status_of(std::system((command + " )").c_str())) == 1);  // the results for standard output are lost
  const io::Json results = io::read_json(shop.temp / "eval" / "evaluation_results.json");
  CHECK(results.contains("loss"));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(shop.temp / "eval"))
    if (entry.is_regular_file()) CHECK_FALSE(holds(io::read_file(entry.path()), "computing in"));
}

}  // namespace strangers_test
