#include "lora/train/step.hpp"

#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

#include "lora/instantiate.hpp"
#include "support/random_model.hpp"
#include "support/temp_folder.hpp"

namespace step_test {

namespace {

using namespace lora;
using namespace lora::test;
using D = cpu::Device;

data::Batch some_batch() {
  data::Batch batch;
  for (Index place = 0; place < 3; ++place) {
    data::Example example;
    for (Index i = 0; i < 7 + place; ++i) {
      example.tokens.push_back(static_cast<std::int32_t>((11 * i + 5 * place) % 61));
      example.labels.push_back(example.tokens.back());
    }
    batch.append(example, place);
  }
  return batch;
}

}  // namespace

TEST_CASE("step: biases and the weights of norms do not decay") {
  const TempFolder folder = TempFolder::in_memory();
  RandomModel shape;
  shape.family = "qwen2";
  write_random_model(folder / "model", shape);
  const auto source = model::Source::open(folder / "model");
  const auto trained = [&](double weight_decay) {
    D dev(1);
    model::Decoder<D, float> decoder(dev, source);
    decoder.train_own(dev, [](const model::TensorInfo&) { return true; });
    train::Stepper<D, float> stepper(dev, decoder, {.weight_decay = weight_decay}, 0, 42);
    const data::Batch batch = some_batch();
    stepper.update(dev, stepper.accumulate(dev, 0, std::span(&batch, 1)), 1e-2);
    std::map<std::string, std::vector<float>> values;
    decoder.params().for_each([&](const auto& param) { values[param.name] = to_host(dev, param.value); });
    return values;
  };
  const auto without = trained(0), with = trained(0.5);
  CHECK(with.size() == model::tensors_of(source.config()).size());
  for (const auto& entry : with) {
    CAPTURE(entry.first);
    const bool decays = entry.first.find("norm") == std::string::npos && !entry.first.ends_with(".bias");
    CHECK((entry.second != without.at(entry.first)) == decays);
  }
}

TEST_CASE("step: what of the model trains may change between steps, and the rest stays as it is") {
  const TempFolder folder = TempFolder::in_memory();
  write_random_model(folder / "model", RandomModel{});
  const auto source = model::Source::open(folder / "model");
  D dev(1);
  model::Decoder<D, bf16> decoder(dev, source);
  decoder.attach(dev, {},
                 [](const model::TensorInfo& info) { return info.kind != model::TensorInfo::Kind::projection; });
  model::init_adapter(dev, decoder, 7);
  train::Stepper<D, bf16> stepper(dev, decoder, {}, 0, 42);
  const data::Batch batch = some_batch();
  const auto values = [&] {
    std::map<std::string, std::vector<float>> result;
    decoder.params().for_each([&](const auto& param) { result[param.name] = to_host(dev, param.value); });
    return result;
  };
  Index number = 0;
  double last = 0;
  for (const std::string_view part : {"lm_head", "lora_", "norm", "embed_tokens", ""}) {
    CAPTURE(part);
    stepper.train(dev, [&](std::string_view name) { return name.find(part) != name.npos; });
    const auto before = values();
    const auto result = stepper.accumulate(dev, number++, std::span(&batch, 1));
    CHECK(result.finite());
    CHECK((last == 0 || result.loss < last));  // each part has lowered it
    last = result.loss;
    stepper.update(dev, result, 1e-2);
    for (const auto& entry : values()) {
      CAPTURE(entry.first);
      const bool moves = entry.first.find(part) != std::string::npos;
      // A's gradient is zero while B is.
      if (!(part == "lora_" && entry.first.ends_with("lora_A")))
        CHECK((entry.second != before.at(entry.first)) == moves);
    }
  }
}

TEST_CASE("decoder: an adapter's file holds its factors alone, and nothing chosen is an error") {
  const TempFolder folder = TempFolder::in_memory();
  write_random_model(folder / "model", RandomModel{});
  const auto source = model::Source::open(folder / "model");
  D dev(1);
  model::Decoder<D, float> decoder(dev, source);
  decoder.attach(dev, {}, [](const model::TensorInfo& info) { return info.kind == model::TensorInfo::Kind::norm; });
  model::init_adapter(dev, decoder, 7);
  std::filesystem::create_directories(folder / "adapter");
  model::save_adapter(dev, decoder, folder / "adapter");
  const auto files = model::open_adapter(folder / "adapter");
  for (const auto& tensor : files.tensors.tensors()) CHECK(tensor.name.find("lora_") != std::string::npos);
  CHECK(files.tensors.tensors().size() == 2 * 7 * 2);
  model::load_adapter(dev, decoder, files);
  CHECK_THROWS_WITH_AS(decoder.train_own(dev, [](const model::TensorInfo&) { return false; }),
                       "none of the model's tensors is chosen to train", ConfigError);
}

}  // namespace step_test
