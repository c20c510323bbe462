// Fine-tuning of a model's own weights as a whole run: what it writes, resumes and refuses.

#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lora/model/weights/weights.hpp"
#include "support/effort.hpp"
#include "support/message_of.hpp"
#include "support/quiet.hpp"
#include "support/workshop.hpp"

namespace full_test {

using namespace lora;
using namespace lora::test;

namespace {

Config full_config(const Workshop& shop, const std::string& output = "run") {
  Config config = shop.config(output);
  config.finetuning_type = "full";
  config.lora_rank.reset();
  config.lora_dropout = 0;
  config.learning_rate = 3e-3;
  return config;
}

std::map<std::string, std::string> tensors_of(const io::Path& folder) {
  std::map<std::string, std::string> tensors;
  const auto source = model::Source::open(folder);
  for (const auto& tensor : source.tensors())
    tensors[tensor.name] = {reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()};
  return tensors;
}

/// The loss of a model folder on the workshop's evaluation records.
double loss_of(const Workshop& shop, const Config& config, const io::Path& model) {
  Config again = full_config(shop, "evaluated");
  again.model_name_or_path = model.native();
  again.dtype = config.dtype;
  again.learning_rate = 0;
  again.max_steps = 1;
  again.overwrite_output_dir = true;
  return fine_tune(again).metrics.eval_loss.value();
}

}  // namespace

TEST_CASE("full: every weight trains, and final_model is a whole model with the run's loss") {
  const Quiet quiet;
  const Workshop shop;
  for (const char* dtype : {"float32", "bfloat16"}) {
    CAPTURE(dtype);
    Config config = full_config(shop, dtype);
    config.dtype = dtype;
    const RunResult result = fine_tune(config);
    const io::Path run = config.output_dir;
    CHECK(result.final_model == run / "final_model");
    const auto before = tensors_of(shop.temp / "model"), after = tensors_of(result.final_model);
    REQUIRE(before.size() == after.size());
    for (const auto& tensor : before) {
      CAPTURE(tensor.first);
      CHECK(tensor.second != after.at(tensor.first));
    }
    CHECK(io::read_json(result.final_model / "config.json").at("torch_dtype") == dtype);
    const std::string card = io::read_file(result.final_model / "README.md");
    CHECK(card.find("library_name: transformers") != card.npos);
    CHECK(card.find("PeftModel") == card.npos);
    const auto lines = log_of(run);
    CHECK(result.metrics.train_loss < lines.front().at("loss").get<double>());
    // In bfloat16 the weights of norms are rounded for final_model.
    const double tolerance = std::string_view(dtype) == "float32" ? 1e-6 : 2e-2;
    CHECK(loss_of(shop, config, result.final_model) == doctest::Approx(*result.metrics.eval_loss).epsilon(tolerance));
  }
}

TEST_CASE("full: a run that is resumed ends with the same bytes") {
  const Quiet quiet;
  const Workshop shop;
  for (const bool some : {false, true}) {
    CAPTURE(some);
    for (const char* dtype : {"float32", "bfloat16"}) {
      CAPTURE(dtype);
      if ((dtype[0] == 'b') != some && !effort(true, false, "full: a run that is resumed, of one of two precisions"))
        continue;
      const auto config_of = [&](const std::string& output) {
        Config config = full_config(shop, concat(output, " ", dtype, some));
        config.dtype = dtype;
        config.gradient_checkpointing = some;
        if (some) config.trainable = {R"(layers\.1\.)", "norm"};
        return config;
      };
      const Config whole = config_of("whole");
      fine_tune(whole);
      const Config part = config_of("part");
      for (const Index last : {5, 10, 13, 0}) {  // 0: to the end
        Config next = part;
        if (last != 5) next.resume_from_checkpoint = "auto";
        std::atomic<int> stop = 0;
        RunOptions options;
        options.stop = &stop;
        options.on_step = [&](const run::StepMetrics& metrics) { stop = metrics.step == last ? 1 : 0; };
        CHECK(fine_tune(next, std::move(options)).stopped_by == (last == 0 ? 0 : 1));
      }
      auto expected = lasting_files(whole.output_dir), found = lasting_files(part.output_dir);
      std::erase_if(found, [&](const auto& file) { return expected.count(file.first) == 0; });
      expect_same(expected, found);
      const io::Path checkpoint = io::Path(whole.output_dir) / "checkpoints" / "checkpoint-3";
      CHECK(io::is_there(checkpoint / "trained.safetensors") == some);
      CHECK(io::is_there(checkpoint / "model.safetensors") != some);
    }
  }
}

TEST_CASE("full: only the tensors that trainable names are trained") {
  const Quiet quiet;
  const Workshop shop;
  Config config = full_config(shop);
  config.trainable = {R"(^model\.layers\.1\..*(q|v)_proj\.weight$)", "embed"};
  const RunResult result = fine_tune(config);
  const auto before = tensors_of(shop.temp / "model"), after = tensors_of(result.final_model);
  for (const auto& tensor : before) {
    const std::string& name = tensor.first;
    CAPTURE(name);
    const bool trains = name == "model.layers.1.self_attn.q_proj.weight" ||
                        name == "model.layers.1.self_attn.v_proj.weight" || name == "model.embed_tokens.weight";
    CHECK((tensor.second != after.at(name)) == trains);
  }
  const auto file =
      io::Safetensors::open(io::Path(config.output_dir) / "checkpoints" / "checkpoint-3" / "trained.safetensors");
  CHECK(file.tensors().size() == 3);
}

TEST_CASE("full: a checkpoint of all weights is a model in float32") {
  const Quiet quiet;
  const Workshop shop;
  Config config = full_config(shop);
  config.dtype = "bfloat16";
  config.max_steps = 3;
  const RunResult result = fine_tune(config);
  const io::Path checkpoint = io::Path(config.output_dir) / "checkpoints" / "checkpoint-3";
  CHECK(io::read_json(checkpoint / "config.json").at("torch_dtype") == "float32");
  const auto source = model::Source::open(checkpoint), last = model::Source::open(result.final_model);
  CHECK(source.stored_dtype() == DType::f32);
  CHECK(last.stored_dtype() == DType::bf16);
  for (const model::TensorInfo& info : model::tensors_of(source.config())) {
    const auto& wide = source.at(info);
    const auto& narrow = last.at(info);
    for (std::size_t i = 0; i < static_cast<std::size_t>(info.shape.count()); ++i) {
      float value = 0;
      bf16 rounded{};
      std::memcpy(&value, wide.bytes.data() + i * sizeof value, sizeof value);
      std::memcpy(&rounded, narrow.bytes.data() + i * sizeof rounded, sizeof rounded);
      REQUIRE(static_cast<float>(bf16(value)) == static_cast<float>(rounded));
    }
  }
}

TEST_CASE("full: final_model may be in shards") {
  const Quiet quiet;
  const Workshop shop;
  Config config = full_config(shop);
  config.max_steps = 2;
  const auto whole = tensors_of(fine_tune(config).final_model);
  config = full_config(shop, "sharded");
  config.max_steps = 2;
  config.max_shard_size = "8KB";
  const io::Path folder = fine_tune(config).final_model;
  CHECK(io::is_there(folder / "model.safetensors.index.json"));
  CHECK((tensors_of(folder) == whole));
  config.overwrite_output_dir = true;  // it is known as a run's
  config.max_shard_size = "5GB";
  CHECK((tensors_of(fine_tune(config).final_model) == whole));
  CHECK_FALSE(io::is_there(folder / "model.safetensors.index.json"));
}

TEST_CASE("full: the best checkpoint becomes final_model") {
  const Quiet quiet;
  const Workshop shop;
  Config config = full_config(shop);
  config.learning_rate = 0.3;  // every step makes it worse
  config.lr_scheduler_type = "constant";
  config.warmup_steps = 0;
  config.eval_steps = 1;
  config.max_steps = 6;
  config.load_best_model_at_end = true;
  const RunResult result = fine_tune(config);
  REQUIRE(result.metrics.best_eval_loss < result.metrics.eval_loss);
  CHECK(loss_of(shop, config, result.final_model) == doctest::Approx(*result.metrics.best_eval_loss).epsilon(1e-6));
}

TEST_CASE("full: what does not go together is refused before anything is written") {
  const Quiet quiet;
  const Workshop shop;
  const auto refuse = [&](auto&& change, const std::string& expected) {
    Config config = full_config(shop, "refused");
    change(config);
    CAPTURE(expected);
    const std::string message = message_of<Error>([&] { fine_tune(config); });
    CAPTURE(message);
    CHECK(message.find(expected) != message.npos);
    CHECK_FALSE(io::is_there(shop.temp / "refused"));
  };
  const std::string no_adapter = ", allowed: with finetuning_type lora: full trains no adapter";
  refuse([](Config& c) { c.lora_rank = 4; }, "key lora_rank: given 4" + no_adapter);
  refuse([](Config& c) { c.lora_alpha = 4; }, "key lora_alpha: given 4" + no_adapter);
  refuse([](Config& c) { c.lora_dropout = 0.5; }, "key lora_dropout: given 0.5" + no_adapter);
  refuse([](Config& c) { c.lora_target = {"q_proj"}; }, "key lora_target: given q_proj" + no_adapter);
  refuse([](Config& c) { c.use_rslora = true; }, "key use_rslora: given true" + no_adapter);
  refuse([](Config& c) { c.adapter_name_or_path = "a"; }, "key adapter_name_or_path: given a" + no_adapter);
  refuse([](Config& c) { c.finetuning_type = "freeze"; },
         "key finetuning_type: given freeze, allowed: one of lora, full");
  refuse(
      [](Config& c) {
        c.trainable = {"embed", "gate"}, c.trainable.push_back("layers.7");
      },
      "key trainable: given layers.7, which is found in the name of no tensor");
  refuse([](Config& c) { c.trainable = {"(?=x)"}; }, "key trainable: given (?=x), which is not understood");
  refuse(
      [](Config& c) {
        c.finetuning_type = "lora";
        c.trainable = {"embed"};
      },
      "key trainable: given embed, allowed: with finetuning_type full");
}

TEST_CASE("full: a resumed run must train what it trained") {
  const Quiet quiet;
  const Workshop shop;
  Config config = full_config(shop);
  config.max_steps = 3;
  fine_tune(config);
  config.resume_from_checkpoint = "auto";
  config.max_steps = 6;
  const auto refuse = [&](Config changed, const std::string& expected) {
    const std::string message = message_of<Error>([&] { fine_tune(changed); });
    CAPTURE(message);
    CHECK(message.find(expected) != message.npos);
  };
  Config other = config;
  other.trainable = {"norm"};
  refuse(other, R"(key trainable: given ["norm"], but )");
  other = config;
  other.finetuning_type = "lora";
  refuse(other, R"(key finetuning_type: given "lora", but )");
  fine_tune(config);
}

TEST_CASE("full: a resumed run may say what it trains in other words, in its stages too") {
  const Quiet quiet;
  const Workshop shop;
  Config config = full_config(shop);
  config.trainable = {"mlp", "norm"};
  config.max_steps = 2;
  fine_tune(config);
  config.resume_from_checkpoint = "auto";
  config.trainable = {"norm", "mlp"};
  config.max_steps = 3;
  CHECK(fine_tune(config).metrics.resumed_from_step == 2);
  config.trainable = {"(up|down|gate)_proj", "layernorm", "(q|k)_norm", "model.norm"};
  config.max_steps = 4;
  CHECK(fine_tune(config).metrics.resumed_from_step == 3);
  config.trainable = {"(up|down|gate)_proj", "layernorm", "model.norm"};
  CHECK(message_of<Error>([&] {
          fine_tune(config);
        }).starts_with(R"(key trainable: given ["(up|down|gate)_proj","layernorm","model.norm"], but )"));

  config = full_config(shop, "staged");
  config.num_train_epochs = 3;
  config.trainable = {"norm"};
  config.stages = {{.until_step = 2}, {.until_step = 4, .trainable = {{"mlp", "norm"}}}};
  std::atomic<int> stop = 1;
  RunOptions options;
  options.stop = &stop;
  fine_tune(config, options);
  config.resume_from_checkpoint = "auto";
  config.trainable.clear();
  config.stages = {{.until_step = 2, .trainable = {{"norm"}}}, {.until_step = 4, .trainable = {{"norm", "mlp"}}}};
  fine_tune(config, options);
  config.stages[0].trainable = {{"norm", "embed"}};
  CHECK(message_of<Error>([&] { fine_tune(config); }).starts_with("key stages: given "));
}

TEST_CASE("full: a base that holds NaN or infinity is told before the first step, wherever it is") {
  const Quiet quiet;
  const Workshop shop;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const char* name : {"model.embed_tokens.weight", "model.layers.1.mlp.up_proj.weight"}) {
      CAPTURE(name);
      auto tensors = random_tensors({});
      for (auto& tensor : tensors)
        if (tensor.name == name) tensor.values.back() = dtype == DType::f16 ? -INFINITY : NAN;
      write_model(shop.temp / "spoiled", config_json({}), tensors, dtype);
      for (const bool trains : {true, false}) {
        Config config = full_config(shop);
        config.model_name_or_path = (shop.temp / "spoiled").native();
        if (!trains) config.trainable = {"norm"};
        CHECK(message_of<NonFiniteError>([&] { fine_tune(config); }) ==
              concat("the tensor ", std::string_view(name), " of ",
                     (shop.temp / "spoiled" / "model.safetensors").native(), " holds ",
                     dtype == DType::f16 ? "-inf" : "nan", "; a model to train holds finite numbers"));
        CHECK_FALSE(io::is_there(shop.temp / "run"));
      }
    }
}

TEST_CASE("full: a model that a run did not write is not replaced") {
  const Quiet quiet;
  const Workshop shop;
  Config config = full_config(shop);
  config.max_steps = 2;
  const io::Path folder = fine_tune(config).final_model;
  io::write_file(folder / "notes.txt", std::string_view("mine"));
  config.overwrite_output_dir = true;
  const std::string message = message_of<Error>([&] { fine_tune(config); });
  CHECK(message.find("it holds notes.txt, which no run wrote there") != message.npos);
  CHECK(io::read_file(folder / "notes.txt") == "mine");
}

}  // namespace full_test
