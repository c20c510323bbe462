// Modules that train in full beside an adapter: runs, what they save, and what reads it. Their numbers beside PEFT's
// are in model/golden_test.cpp and model/peft_test.cpp.

#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "support/effort.hpp"
#include "support/message_of.hpp"
#include "support/quiet.hpp"
#include "support/workshop.hpp"

namespace additional_target_test {

using namespace lora;
using namespace lora::test;

namespace {

struct Fitting : Workshop {
  explicit Fitting(bool tied) {
    RandomModel shape;
    shape.tied = tied;
    write_random_model(temp / "model", shape);
  }

  Config additional(const std::string& output) const {
    Config changed = config(output);
    changed.additional_target = {"embed_tokens", "lm_head", "norms"};
    changed.learning_rate = 3e-3;
    return changed;
  }
};

std::string bytes_of(const io::Safetensors& file, const std::string& name) {
  const auto* const tensor = file.find(name);
  REQUIRE_MESSAGE(tensor != nullptr, name);
  return {reinterpret_cast<const char*>(tensor->bytes.data()), tensor->bytes.size()};
}

double last_evaluation(const io::Path& run) {
  double loss = 0;
  for (const io::Json& line : log_of(run))
    if (line.contains("eval_loss")) loss = line.at("eval_loss");
  return loss;
}

}  // namespace

TEST_CASE("additional_target: the adapter holds what was trained in full, and is the same model again") {
  const Quiet quiet;
  for (const bool tied : {false, true}) {
    CAPTURE(tied);
    const Fitting shop(tied);
    const Config config = shop.additional("run");
    const io::Path adapter = fine_tune(config).final_model;
    const auto file = io::Safetensors::open(adapter / "adapter_model.safetensors");
    const auto base = io::Safetensors::open(shop.temp / "model" / "model.safetensors");
    std::size_t whole = 0;
    for (const auto& tensor : base.tensors()) {
      CAPTURE(tensor.name);
      const bool trains = tensor.name.find("norm") != tensor.name.npos || tensor.name.find("proj") == tensor.name.npos;
      const auto* found = file.find("base_model.model." + tensor.name);
      CHECK((found != nullptr) == trains);
      if (!trains) continue;
      ++whole;
      CHECK(found->dtype == DType::f32);
      CHECK(bytes_of(file, found->name) != bytes_of(base, tensor.name));
    }
    CHECK(whole == (tied ? 10 : 11));  // four norms in each of two layers and one after them
    CHECK(bytes_of(file, "base_model.model.lm_head.weight").size() == 61 * 16 * 4);
    if (tied)
      CHECK(bytes_of(file, "base_model.model.lm_head.weight") ==
            bytes_of(file, "base_model.model.model.embed_tokens.weight"));
    const io::Json json = io::read_json(adapter / "adapter_config.json");
    CHECK(json.at("modules_to_save") == io::Json{"embed_tokens", "lm_head", "input_layernorm",
                                                 "post_attention_layernorm", "norm", "q_norm", "k_norm"});

    // A run that starts from it begins where it ended, and goes on training all of it.
    Config next = shop.config("next");
    next.adapter_name_or_path = adapter.native();
    next.eval_on_start = true;
    next.max_steps = 2;
    fine_tune(next);
    const auto log = log_of(shop.temp / "next");
    CHECK(log.front().at("step") == 0);
    CHECK(log.front().at("eval_loss") == last_evaluation(shop.temp / "run"));
    const auto later = io::Safetensors::open(shop.temp / "next" / "final_model" / "adapter_model.safetensors");
    CHECK(later.tensors().size() == file.tensors().size());
    for (const auto& tensor : later.tensors()) {
      CAPTURE(tensor.name);
      CHECK(bytes_of(later, tensor.name) != bytes_of(file, tensor.name));
    }
    next.additional_target = {"lm_head"};
    next.overwrite_output_dir = true;
    CHECK(message_of<ConfigError>([&] { fine_tune(next); }).starts_with("key additional_target: given "));
  }
}

TEST_CASE("additional_target: a resumed run has the bytes of a whole one") {
  const Quiet quiet;
  for (const char* dtype : {"float32", "bfloat16"}) {
    CAPTURE(dtype);
    if (dtype[0] == 'f' && !effort(true, false, "additional_target: resumed in float32")) continue;
    const Fitting shop(true);
    Config config = shop.additional("whole");
    config.dtype = dtype;
    fine_tune(config);
    config.output_dir = (shop.temp / "stopped").native();
    std::atomic<int> stop{0};
    RunOptions options;
    options.stop = &stop;
    options.on_step = [&](const run::StepMetrics& metrics, Running&) { stop = metrics.step == 7 ? 2 : 0; };
    CHECK(fine_tune(config, std::move(options)).stopped_by == 2);
    config.resume_from_checkpoint = "auto";
    config.additional_target = {"norms"};
    CHECK(message_of<ConfigError>([&] { fine_tune(config); }).starts_with("key additional_target: given "));
    config.additional_target = {"norms", "embed_tokens"};  // of a tied head: the same
    fine_tune(config);
    CHECK(numbers_of(config.output_dir) == numbers_of(shop.temp / "whole"));
    CHECK(adapter_values(shop.temp / "stopped" / "final_model") == adapter_values(shop.temp / "whole" / "final_model"));
  }
}

TEST_CASE("additional_target: norms of models with norms behind each half are resumed, and loaded again") {
  const Quiet quiet;
  for (const char* family : {"gemma2", "gemma3_text"}) {
    CAPTURE(family);
    const Workshop shop;
    write_random_model(shop.temp / "model", {.family = family, .more = {{"sliding_window", 4}}});
    Config config = shop.config("run");
    config.additional_target = {"norms"};
    config.max_steps = 2;
    config.save_steps = 1;
    const auto first = fine_tune(config);
    config.max_steps = 3;
    config.resume_from_checkpoint = "auto";
    CHECK(fine_tune(config).metrics.resumed_from_step == 2);
    const auto files = model::open_adapter(first.final_model);
    CHECK_NOTHROW(model::check_adapter(files, model::Source::open(shop.temp / "model").config()));
    CHECK(files.config.whole_modules.size() == (family == std::string("gemma2") ? 5 : 7));
  }
}

TEST_CASE("additional_target: merging takes what was trained in full") {
  const Quiet quiet;
  for (const bool tied : {false, true}) {
    CAPTURE(tied);
    const Fitting shop(tied);
    const io::Path adapter = fine_tune(shop.additional("run")).final_model;
    const auto files = model::open_adapter(adapter);
    const auto source = model::Source::open(shop.temp / "model");
    model::check_adapter(files, source.config());
    cpu::Device dev(1);
    model::Decoder<cpu::Device, float> decoder(dev, source);
    decoder.attach(dev, files.config);
    model::load_adapter(dev, decoder, files);
    io::create_folders(shop.temp / "merged");
    model::save_merged(dev, decoder, source, shop.temp / "merged", std::nullopt, Index{1} << 30);
    const auto merged = io::Safetensors::open(shop.temp / "merged" / "model.safetensors");
    for (const char* name :
         {"model.embed_tokens.weight", "model.norm.weight", "model.layers.1.self_attn.q_norm.weight"})
      CHECK(bytes_of(merged, name) == bytes_of(files.tensors, concat("base_model.model.", name)));
    CHECK((merged.find("lm_head.weight") == nullptr) == tied);
    Config config = shop.config("again");
    config.model_name_or_path = (shop.temp / "merged").native();
    config.eval_on_start = true;
    config.max_steps = 1;
    fine_tune(config);
    const double loss = last_evaluation(shop.temp / "run");
    // The adapter's products are rounded once more in the merged weights: two layers of seven.
    CHECK(std::fabs(log_of(shop.temp / "again").front().at("eval_loss").get<double>() - loss) < 14 * 0x1p-20 * loss);
  }
}

}  // namespace additional_target_test
