// LoRA+ as a run; its numbers against PEFT's are in model/golden_test.cpp.

#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "support/message_of.hpp"
#include "support/quiet.hpp"
#include "support/workshop.hpp"

namespace loraplus_test {

using namespace lora;
using namespace lora::test;

namespace {

std::map<std::string, std::vector<float>> tensors_of(const io::Path& folder) {
  const auto file = io::Safetensors::open(folder / "adapter_model.safetensors");
  std::map<std::string, std::vector<float>> tensors;
  for (const auto& tensor : file.tensors()) {
    const auto* data = reinterpret_cast<const float*>(tensor.bytes.data());
    tensors[tensor.name].assign(data, data + tensor.shape.count());
  }
  return tensors;
}

}  // namespace

TEST_CASE("LoRA+: B moves as much faster as the ratio says, and A as before") {
  const Quiet quiet;
  const Workshop shop;
  Config config = shop.config("plain");
  config.max_steps = 1;
  config.warmup_steps = 0;
  config.lr_scheduler_type = "constant";
  fine_tune(config);
  config.output_dir = (shop.temp / "faster").native();
  config.loraplus_lr_ratio = 8;
  fine_tune(config);
  const auto plain = tensors_of(shop.temp / "plain" / "final_model"),
             faster = tensors_of(shop.temp / "faster" / "final_model");
  REQUIRE(plain.size() == faster.size());
  for (const auto& item : plain) {
    const std::string& name = item.first;
    CAPTURE(name);
    const double ratio = name.find("lora_B") != name.npos ? 8 : 1;
    double size = 0;
    for (std::size_t i = 0; i < item.second.size(); ++i) {
      // B begins at 0, so that nothing decays in its first step; a rounding or two of the rate.
      const double expected = ratio * static_cast<double>(item.second[i]);
      CHECK(std::fabs(static_cast<double>(faster.at(name)[i]) - expected) <= 4 * 0x1p-24 * std::fabs(expected));
      size += std::fabs(expected);
    }
    CHECK(size > 0);
  }
  config.resume_from_checkpoint = "auto";
  config.loraplus_lr_ratio = 4;
  CHECK(message_of<ConfigError>([&] { fine_tune(config); }).starts_with("key loraplus_lr_ratio: given 4"));
}

TEST_CASE("LoRA+: a ratio of 1 is none, on resume too") {
  const Quiet quiet;
  const Workshop shop;
  Config config = shop.config("none");
  config.max_steps = 4;
  fine_tune(config);
  config.output_dir = (shop.temp / "one").native();
  config.loraplus_lr_ratio = 1;
  config.max_steps = 2;
  config.lr_scheduler_type = "constant";
  fine_tune(config);
  Config other = config;
  other.resume_from_checkpoint = "auto";
  other.loraplus_lr_ratio.reset();
  other.max_steps = 3;
  CHECK(fine_tune(other).metrics.resumed_from_step == 2);
  other.loraplus_lr_ratio = 1;
  other.max_steps = 4;
  CHECK(fine_tune(other).metrics.resumed_from_step == 3);
  // As earlier versions noted it.
  const io::Path folder = shop.temp / "one" / "checkpoints" / "checkpoint-4";
  run::RunState state = run::Checkpoints::open(folder).state;
  state.settings["loraplus_lr_ratio"] = 1.0;
  run::Checkpoints(shop.temp / "one").save(state, [&](const io::Path& to) {
    for (const char* name : {"adapter_config.json", "adapter_model.safetensors", "optimizer.safetensors", "README.md"})
      io::copy_file(folder / name, to / name);
  });
  other.max_steps = 5;
  CHECK(fine_tune(other).metrics.resumed_from_step == 4);
}

TEST_CASE("LoRA+: what learns faster decays as well, at its own rate") {
  const Quiet quiet;
  const Workshop shop;
  const auto sum_of_b = [&](const char* name, double decay) {
    Config config = shop.config(name);
    config.lr_scheduler_type = "constant";
    config.warmup_steps = 0;
    config.learning_rate = 1e-3;
    config.loraplus_lr_ratio = 8;
    config.weight_decay = decay;
    config.max_steps = 2;
    config.save_steps = 0;
    fine_tune(config);
    double sum = 0;
    for (const auto& [tensor, values] : tensors_of(shop.temp / name / "final_model"))
      if (holds(tensor, "lora_B"))
        for (const float value : values) sum += std::fabs(static_cast<double>(value));
    return sum;
  };
  // B begins with zeros. Its first step is about lr * ratio in each element, and so is the second, before which the
  // first shrinks by lr * ratio * decay = 0.08: the sum of both by 4 %. A shrinks by 1 %, of which AdamW sees little.
  CHECK(sum_of_b("decays", 10) / sum_of_b("stays", 0) == doctest::Approx(0.96).epsilon(0.01));
}

}  // namespace loraplus_test
