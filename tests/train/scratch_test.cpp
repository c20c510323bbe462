// Training from scratch: a run that begins with random weights, from a folder that needs none.

#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "lora/io/formats/safetensors.hpp"
#include "lora/model/weights/random_weights.hpp"
#include "lora/tokenizer/tokenizer.hpp"
#include "support/byte_tokenizer.hpp"
#include "support/message_of.hpp"
#include "support/quiet.hpp"
#include "support/workshop.hpp"

namespace scratch_test {

using namespace lora;
using namespace lora::test;

namespace {

Config from_scratch(const Workshop& shop, const std::string& output) {
  Config config = shop.config(output);
  config.model_name_or_path = (shop.temp / "shape").native();
  config.finetuning_type = "full";
  config.train_from_scratch = true;
  config.lora_rank.reset();
  config.lora_dropout = 0;
  config.learning_rate = 3e-3;
  config.seed = 7;
  return config;
}

/// A folder with the workshop's config.json and nothing else.
void write_shape(const Workshop& shop) {
  io::create_folders(shop.temp / "shape");
  io::copy_file(shop.temp / "model" / "config.json", shop.temp / "shape" / "config.json");
}

/// A folder with the weights that training from scratch begins with.
void write_initial(const Workshop& shop, std::uint64_t seed) {
  const io::Path folder = shop.temp / "initial";
  io::create_folders(folder);
  io::Json json = io::read_json(shop.temp / "shape" / "config.json");
  io::write_json(folder / "config.json", json);
  const model::RandomWeights weights(model::parse_config(json, "config.json"), seed);
  std::vector<io::TensorDeclaration> declarations;
  for (const model::TensorInfo& info : model::tensors_of(weights.config())) {
    declarations.push_back({info.name, DType::f32, info.shape});
  }
  io::SafetensorsWriter writer(folder / "model.safetensors", std::move(declarations));
  for (const model::TensorInfo& info : model::tensors_of(weights.config())) {
    const auto tensor = weights.provide(info);
    writer.add(info.name, tensor.bytes);
  }
  writer.commit();
}

}  // namespace

TEST_CASE("scratch: a run is a full fine-tuning of the random weights, to the bit") {
  const Quiet quiet;
  const Workshop shop;
  write_shape(shop);
  write_initial(shop, 7);
  for (const char* dtype : {"float32", "bfloat16"}) {
    CAPTURE(dtype);
    Config config = from_scratch(shop, concat("scratch ", dtype));
    config.dtype = dtype;
    const RunResult result = fine_tune(config);
    Config tuned = config;
    tuned.train_from_scratch = false;
    tuned.model_name_or_path = (shop.temp / "initial").native();
    tuned.output_dir = (shop.temp / concat("tuned ", dtype)).native();
    const RunResult other = fine_tune(tuned);
    CHECK(numbers_of(config.output_dir) == numbers_of(tuned.output_dir));
    const auto weights = [](const io::Path& folder) { return io::read_file(folder / "model.safetensors"); };
    CHECK((weights(result.final_model) == weights(other.final_model)));
    CHECK(result.metrics.train_loss < log_of(config.output_dir).front().at("loss").get<double>());
  }
}

TEST_CASE("scratch: weights that the folder has are not read, and the seed decides those that are drawn") {
  const Quiet quiet;
  const Workshop shop;
  write_shape(shop);
  const auto first_loss = [&](const std::string& output, auto&& change) {
    Config config = from_scratch(shop, output);
    config.max_steps = 1;
    config.logging_steps = 1;
    config.shuffle = false;
    change(config);
    fine_tune(config);
    return log_of(config.output_dir).front().at("loss").get<double>();
  };
  const double plain = first_loss("plain", [](Config&) {});
  CHECK(std::fabs(plain - std::log(61.0)) < 0.1);  // a vocabulary of 61, all about as likely
  CHECK(first_loss("with weights", [&](Config& c) { c.model_name_or_path = (shop.temp / "model").native(); }) == plain);
  CHECK(first_loss("another seed", [](Config& c) { c.seed = 8; }) != plain);
}

TEST_CASE("scratch: a run that is resumed ends with the same bytes") {
  const Quiet quiet;
  const Workshop shop;
  write_shape(shop);
  const Config whole = from_scratch(shop, "whole");
  fine_tune(whole);
  Config part = from_scratch(shop, "part");
  std::atomic<int> stop = 0;
  RunOptions options;
  options.stop = &stop;
  options.on_step = [&](const run::StepMetrics& metrics) { stop = metrics.step == 7 ? 1 : 0; };
  CHECK(fine_tune(part, std::move(options)).stopped_by == 1);
  part.resume_from_checkpoint = "auto";
  CHECK(fine_tune(part).metrics.resumed_from_step == 7);
  run::Checkpoints(shop.temp / "part").remove(7);
  expect_same(lasting_files(whole.output_dir), lasting_files(part.output_dir));
  const std::string card = io::read_file(shop.temp / "whole" / "final_model" / "README.md");
  CHECK(card.find("Trained from scratch, with the shape of") != card.npos);
  CHECK(card.find("base_model") == card.npos);
}

TEST_CASE("scratch: rows of the vocabulary that no token has are told") {
  Quiet quiet;
  const Workshop shop;
  write_shape(shop);
  io::write_file(shop.temp / "shape" / "tokenizer.json", std::string_view(byte_tokenizer_json()));
  const Index tokens = tokenizer::Tokenizer::from_file(shop.temp / "shape" / "tokenizer.json").vocab_size();
  io::Json json = io::read_json(shop.temp / "shape" / "config.json");
  json["vocab_size"] = tokens + 7;
  io::write_json(shop.temp / "shape" / "config.json", json);
  Config config = from_scratch(shop, "run");
  config.max_steps = 1;
  fine_tune(config);
  const model::Config shape = model::parse_config(json, "config.json");
  CHECK(quiet.said(concat("7 of the ", tokens + 7, " rows of the vocabulary have no token of the tokenizer: ",
                          7 * shape.hidden_size * (shape.tie_word_embeddings ? 1 : 2), " of ",
                          model::parameters_of(shape), " parameters are never used\n")));
}

TEST_CASE("scratch: what can't be meant is refused") {
  const Quiet quiet;
  const Workshop shop;
  write_shape(shop);
  const auto refuse = [&](auto&& change, const std::string& expected) {
    Config config = from_scratch(shop, "refused");
    change(config);
    const std::string message = message_of<Error>([&] { fine_tune(config); });
    CAPTURE(expected);
    CAPTURE(message);
    CHECK(message.find(expected) != message.npos);
    CHECK_FALSE(io::is_there(shop.temp / "refused"));
  };
  refuse([](Config& c) { c.finetuning_type = "lora"; },
         "key train_from_scratch: given true, allowed: with finetuning_type full");
  refuse([&](Config& c) { c.train_from_scratch = false; }, "no model.safetensors or model.safetensors.index.json in ");
  refuse([&](Config& c) { c.model_name_or_path = shop.temp.path().native(); }, "config.json");
  Config config = from_scratch(shop, "run");
  config.max_steps = 3;
  fine_tune(config);
  config.resume_from_checkpoint = "auto";
  config.train_from_scratch = false;
  config.model_name_or_path = (shop.temp / "model").native();
  const std::string message = message_of<Error>([&] { fine_tune(config); });
  CAPTURE(message);
  CHECK(message.find("key model_name_or_path: given ") != message.npos);
  CHECK(message.find(", random weights") != message.npos);
}

}  // namespace scratch_test
